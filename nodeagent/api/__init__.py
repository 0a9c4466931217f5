"""The agent as a client of the API: requests, watches with their caches, Events."""
