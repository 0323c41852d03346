"""Parsers of files that contain files: archives and mails."""
