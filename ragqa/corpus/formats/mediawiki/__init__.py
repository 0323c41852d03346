"""Dumps of Wikipedia: ``dump`` reads the pages of the XML, and ``text`` converts the wikitext of a page."""
