"""Retrievers: dense, BM25 and hybrid."""
