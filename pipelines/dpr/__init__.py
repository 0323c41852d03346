"""DPR: supervised training of a dual encoder (Karpukhin et al. 2020)."""
