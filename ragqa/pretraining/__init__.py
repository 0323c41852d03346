"""What to mask and what to pair: for pretraining."""
