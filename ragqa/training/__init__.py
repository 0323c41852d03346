"""Shared leaves of training: step, schedule, checkpoints, metric log. Each recipe writes its own loop."""
