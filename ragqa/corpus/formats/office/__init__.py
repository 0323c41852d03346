"""Read Office files, e-books, PDF and images in another process, so that a crash does no harm."""
