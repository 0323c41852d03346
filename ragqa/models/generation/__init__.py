"""Generators over seq2seq models: RAG, Fusion-in-Decoder, and their decoding."""
