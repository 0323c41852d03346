"""Train the span reader that ships with ragqa."""
