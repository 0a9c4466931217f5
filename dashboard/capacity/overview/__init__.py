"""The first page: what is held, what waits, what is wrong."""
