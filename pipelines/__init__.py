"""Training recipes, each in a folder or a file; ``common/`` has their shared parts."""
