"""Shared leaves of training: schedule, checkpoints, metric log. Each recipe writes its own loop."""
