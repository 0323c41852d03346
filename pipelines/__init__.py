"""One file per system of the literature: its config, its training, how its pipeline is put together."""
