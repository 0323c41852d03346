"""From passages that were found to answers: extractive here; how they were found is not known."""
