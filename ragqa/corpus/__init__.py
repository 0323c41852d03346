"""Documents to blocks to a passage store: what is read, how it is cut, where it is kept."""
