"""Torch modules, for training: each saves and loads its own weights."""
