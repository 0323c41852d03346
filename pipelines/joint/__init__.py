"""Joint training: one retriever learns from masked words and questions at the same time."""
