"""Choose the confidence threshold of an index by conformal risk control."""
