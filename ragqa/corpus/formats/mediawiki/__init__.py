"""Wikipedia's XML dumps: ``dump`` reads the pages of the XML, ``text`` the text of a page's wikitext."""
