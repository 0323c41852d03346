"""Readers of document formats, one file each; ``registry`` has the table of them."""
