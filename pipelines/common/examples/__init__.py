"""Training examples: questions with positives, negatives and gold spans."""
