"""Second implementations of published rules, slow and plain, for tests to compare ragqa with.

Each was written from the rule as its paper and scripts state it, by other means than ragqa's (no
shared code, no shared regular expression), so that one slip is unlikely to stand in both.
"""
