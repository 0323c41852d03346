"""Parts that training recipes share, such as optimizer steps, checkpoints and logs."""
