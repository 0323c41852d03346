"""Parsers of text files: plain text and light markup."""
