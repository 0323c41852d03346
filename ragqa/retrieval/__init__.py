"""From questions to passages: dense, by terms, or both."""
