"""Train the extractive reader that ships with ragqa."""
