"""Language models that answer from the passages, on a server or from a file, and the checks of what they write."""
