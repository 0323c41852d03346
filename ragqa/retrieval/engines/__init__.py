"""Engines of BM25, each a class that ``ragqa.retrieval.bm25`` uses.

It has ``name``, ``check_installed``, ``build``, ``update``, ``open`` and ``rank``, with the arguments of ``Tantivy``.
"""
