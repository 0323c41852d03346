"""Build and update index directories."""
