"""The wallboard: what a team reads from across the room."""
