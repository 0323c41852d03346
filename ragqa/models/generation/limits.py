"""Default lengths of generators, importable without torch."""

MAX_INPUT = 300
"""Maximum length of a pair in tokens (RAG's ``max_combined_length``)."""
MAX_ANSWER = 32
"""Maximum length of an answer in tokens, the end included."""
