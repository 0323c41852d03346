"""Reading documents, cutting them into passages, and the store of passages on disk."""
