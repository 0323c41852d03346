"""Search of passages for answers, for many questions at once."""
