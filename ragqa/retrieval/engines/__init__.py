"""Engines of BM25: a class each with ``name``, ``check_installed``, ``build``, ``update``, ``open`` and ``rank``.

``ragqa.retrieval.bm25`` calls these; ``engines/tantivy.py`` shows their arguments.
"""
