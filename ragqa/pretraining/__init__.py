"""Pretraining tasks: masking, inverse cloze, denoising and the salient spans that they use."""
