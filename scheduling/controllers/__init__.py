"""The controllers: each compares what is with what should be, and writes the difference.

Every controller has `sweep(now)`, which looks at everything there is to look at, and most have `look(...)`, which looks
at what an event points to. Both work from the current state, are idempotent, and may run in any number of workers at
once: what they write is decided inside the writing transaction. Both return how many objects they changed.
"""
