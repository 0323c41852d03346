"""Training recipes, a folder or a file each; ``common/`` holds what they share."""
