"""Parsers of document formats; ``registry`` has the table of all formats."""
