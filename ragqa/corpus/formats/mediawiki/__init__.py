"""Dumps of Wikipedia: ``dump`` reads the pages of the XML, ``text`` the wikitext of a page."""
