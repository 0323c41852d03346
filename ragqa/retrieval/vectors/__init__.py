"""Passage vectors: their files, and exact and approximate search over them."""
