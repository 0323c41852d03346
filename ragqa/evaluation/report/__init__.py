"""Reports on disk: their figures and rows, a summary in text, and an HTML page with plots."""
