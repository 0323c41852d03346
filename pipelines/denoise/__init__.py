"""Pretraining of a seq2seq model by denoising (T5, BART)."""
