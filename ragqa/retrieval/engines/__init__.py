"""Engines of BM25, for ``ragqa.retrieval.bm25``.

An engine is a class with a ``name`` and the methods of ``Tantivy``. ``has_term`` and ``rank_similar`` are optional, but
one needs the other.
"""
