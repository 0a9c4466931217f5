"""The documentation, to which pages lead from hard words."""
