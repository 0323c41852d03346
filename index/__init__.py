"""Ray jobs that make and keep an index."""
