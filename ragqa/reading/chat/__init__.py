"""Language models on a server or in a file that answer from passages, and the checks of their answers."""
