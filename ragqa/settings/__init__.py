"""Frozen dataclasses of settings, and the command lines and JSON files that fill them."""
