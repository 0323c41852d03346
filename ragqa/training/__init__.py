"""Parts that training recipes share: optimizer steps, processes, precision, checkpoints, logs and health."""
