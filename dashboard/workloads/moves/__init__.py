"""Moves: pods that would make room for others."""
