"""Torch modules for training; each module saves and loads its own weights."""
