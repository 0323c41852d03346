"""Tables that compare systems: the systems are declared as data, and one runner trains them."""
