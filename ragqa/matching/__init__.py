"""Search texts: for the answers to many questions, for patterns, for quotations, and for sentences."""
