"""Explains why a pod or a claim waits, to people and programs, from the current state. Nothing is written.

`report` examines every node with the code that schedules, and finds the dominant cause; `documents` makes the
Explanation that the API serves; `current` keeps the state that all of it is read from.
"""
