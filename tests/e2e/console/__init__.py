"""The console over real clusters: each answer is held to its shape."""
