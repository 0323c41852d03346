"""A rule-based tagger of names, dates and numbers in English text."""
