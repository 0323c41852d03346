"""Shared parts of training: step, checkpoints, metric log. Each recipe has its own loop."""
