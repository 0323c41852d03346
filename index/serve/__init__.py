"""Serve an index in shards over HTTP, on Ray Serve."""
