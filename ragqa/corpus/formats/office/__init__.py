"""Office files, e-books and PDF: their text is extracted in another process, which can crash without harm."""
