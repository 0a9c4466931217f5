"""Rehearsals: what a change would do."""
