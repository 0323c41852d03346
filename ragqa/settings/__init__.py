"""Frozen dataclasses of settings, and the command lines and files that fill them."""
