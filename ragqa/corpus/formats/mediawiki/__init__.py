"""Wikipedia's XML dumps: pages out of the XML, and text out of the wikitext of a page."""
