"""Reports on disk: figures, tables, the page and its plots."""
