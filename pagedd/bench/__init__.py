"""A reproducible load for the daemon, and what came of it."""
