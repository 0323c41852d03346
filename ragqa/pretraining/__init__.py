"""Pretraining tasks: masking, salient spans for masking, inverse cloze, and denoising."""
