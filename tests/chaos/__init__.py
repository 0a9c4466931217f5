"""`make chaos`: everything goes wrong at random, by a seed, while clients work; afterwards every promise is checked.

linearizability   could what clients saw of one object have been one object?
strikes           which fault begins when, and how long it lasts, drawn from a seed
links             connections that can be cut, stalled and delayed
faults            what can go wrong with processes, links, disks, clocks and drivers
clients           those who work meanwhile, and remember what they saw
field             the installation that all this happens to
embedded          the same in one process
limits            people who run into limits: tenants, imitated nodes and drivers, an oracle that adds everything up
verdict           what must hold afterwards
"""
