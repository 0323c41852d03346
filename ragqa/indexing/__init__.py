"""Building and updating of index directories."""
