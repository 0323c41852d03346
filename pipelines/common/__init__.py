"""Parts that recipes share: runs, configs, processes, training data and indexes."""
