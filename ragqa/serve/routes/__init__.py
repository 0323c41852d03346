"""Routes of the server, one module per group."""
