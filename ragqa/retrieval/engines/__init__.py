"""Engines of BM25, for ``ragqa.retrieval.bm25``.

An engine is a class with ``name``, ``check_installed``, ``build``, ``update``, ``open`` and ``rank``. The arguments are
the same as in ``Tantivy``.
"""
