"""Drivers with a controller, whole."""
