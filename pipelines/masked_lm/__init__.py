"""Masked language modelling (BERT, Devlin et al. 2019)."""
