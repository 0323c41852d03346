"""Ray jobs that embed, build, refresh and serve an index."""
