"""Thresholds of confidence for an index, chosen by conformal risk control."""
