"""Joint training: one retriever learns from masked words and from questions."""
