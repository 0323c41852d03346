"""Parts that recipes share: runs, configs, processes, training data, indexes."""
