"""Measurements of speed and memory; each script writes one JSON file."""
