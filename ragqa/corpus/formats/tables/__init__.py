"""Parsers of tables, and of files with one record per line or per JSON object."""
