"""Retrievers and a reader for other frameworks; each module needs its framework."""
