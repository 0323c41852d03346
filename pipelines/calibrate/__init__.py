"""Calibrate a reader's confidence on held-out questions."""
