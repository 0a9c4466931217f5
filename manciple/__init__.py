"""The project package: the wiring, and the machinery that knows no device."""
