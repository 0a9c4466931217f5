"""The search over everything that has a name."""
