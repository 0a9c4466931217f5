"""People: who may sign in, their groups and their tokens."""
