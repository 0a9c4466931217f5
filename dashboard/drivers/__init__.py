"""Drivers: what each publishes."""
