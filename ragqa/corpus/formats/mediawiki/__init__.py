"""Parsers of Wikipedia dumps: ``dump`` reads the XML, and ``text`` converts the wikitext."""
