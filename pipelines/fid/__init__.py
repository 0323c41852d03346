"""Fusion-in-Decoder (Izacard & Grave 2021), and the closed book (Roberts et al. 2020)."""
