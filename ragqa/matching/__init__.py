"""Search passages for the answers to many questions at once."""
