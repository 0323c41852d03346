"""Answers that a language model writes from passages, and checks of these answers.

The model runs on a server, or in this process from a GGUF file.
"""
