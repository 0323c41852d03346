"""Read Office files, e-books, PDF and images in another process, where a crash is harmless."""
