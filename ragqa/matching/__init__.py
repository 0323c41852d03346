"""Search texts for answers, patterns, quotations and sentences."""
