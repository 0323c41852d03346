"""ORQA: open-retrieval question answering (Lee et al. 2019)."""
