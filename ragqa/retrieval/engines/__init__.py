"""Engines of BM25, for ``ragqa.retrieval.bm25``.

An engine is a class with ``name``, ``check_installed``, ``build``, ``update``, ``open`` and ``rank``, which have the
arguments of ``Tantivy``. An engine that can look up terms also has ``has_term`` and ``rank_similar``.
"""
