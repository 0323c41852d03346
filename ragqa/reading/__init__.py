"""Readers: from retrieved passages to answers with sources and confidences."""
