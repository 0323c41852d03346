"""Readers, which turn retrieved passages into answers with sources and confidences."""
