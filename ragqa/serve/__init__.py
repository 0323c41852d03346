"""Server of ragqa: HTTP routes and their limits, the page, and tools for agents."""
