"""Parts that training recipes share: optimizer step, checkpoints, metric log and others."""
