"""Sequence-to-sequence generators: RAG, Fusion-in-Decoder, and their decoding."""
