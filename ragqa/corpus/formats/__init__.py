"""One reader per file format; ``registry`` names them all."""
