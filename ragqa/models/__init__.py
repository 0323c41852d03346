"""Torch modules for training, each of which saves and loads its own weights."""
