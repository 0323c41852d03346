"""Pretraining tasks: masking, inverse cloze, denoising, and salient spans for masking."""
