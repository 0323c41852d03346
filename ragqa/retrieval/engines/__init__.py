"""Engines of BM25, each a class that ``ragqa.retrieval.bm25`` describes."""
