"""Tables that compare systems, which are declared as data and trained by one runner."""
