"""Training examples: questions with positive passages, negatives and gold spans."""
