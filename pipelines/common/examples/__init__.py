"""Training examples: questions with positives and negatives, sampled passages, and gold spans."""
