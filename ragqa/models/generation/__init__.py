"""Generators that use seq2seq models: RAG, Fusion-in-Decoder, and their decoding."""
