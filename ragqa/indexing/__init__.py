"""Build, update and sync indexes."""
