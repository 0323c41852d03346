"""Generators from seq2seq models: RAG, Fusion-in-Decoder, closed book, and their decoding."""
