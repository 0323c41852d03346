"""Pretraining of a sequence-to-sequence model by denoising (T5, BART)."""
