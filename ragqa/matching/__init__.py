"""Find which passages hold an answer, for many questions at once."""
