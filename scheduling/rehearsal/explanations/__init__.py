"""Why a pod or a claim waits, for people and programs: worked out from the current state, nothing written.

`report` asks every node, by the code that schedules, and finds the dominant cause; `documents` makes the Explanation
that the API serves; `current` keeps the state that all of it is read from.
"""
