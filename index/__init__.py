"""Ray jobs that build, refresh and serve an index."""
