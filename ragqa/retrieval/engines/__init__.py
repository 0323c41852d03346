"""Engines of BM25, for ``ragqa.retrieval.bm25``.

An engine is a class with a ``name`` and the methods ``check_installed``, ``build``, ``update``, ``open`` and ``rank``
of ``Tantivy``. An engine that can look up terms also has ``has_term`` and ``rank_similar``.
"""
