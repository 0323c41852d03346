"""REALM: retrieval-augmented language model pretraining (Guu et al. 2020)."""
