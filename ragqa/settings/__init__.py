"""Frozen dataclasses of settings, with their command lines and JSON files.

Jobs, recipes and suites use them; the command ``ragqa`` does not.
"""
