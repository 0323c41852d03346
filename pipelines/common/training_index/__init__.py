"""The index that a recipe searches in training, in a frozen and a refreshed form."""
