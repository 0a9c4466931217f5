"""The controllers: each compares what is with what should be, and writes the difference.

A module says what its controller does and then declares it (`declaration.Controller`): that is all it takes. Most have
`sweep(now)`, which goes through everything there is to go through, and some `handle(...)`, which goes through what
events point to. Both work from the current state, are idempotent, and may run in any number of workers at once: what
they write is decided inside the writing transaction. Both return how many objects they changed, and a sweep changes
at most so many in a run: candidates are found by index, in a few queries, whatever the size of the cluster.
"""
