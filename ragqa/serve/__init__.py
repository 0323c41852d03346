"""HTTP server of the library: routes, their limits, and the page."""
