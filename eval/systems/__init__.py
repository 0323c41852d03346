"""Tables of systems: arms declared as data, trained and measured by one runner."""
