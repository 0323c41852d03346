"""Documents, their splitting into passages, and the passage store."""
