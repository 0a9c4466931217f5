"""The read model of devices: what is published, the holders, and the state of each device.

Pages and metrics share it. `cache.read_devices()` returns a `DeviceSnapshot`:

    snapshot.pools[driver, pool]    # a `PoolState`: the pool as published, its holders, the state of each device
    snapshot.candidates             # every published device; the same tuple until something is published
    snapshot.counts                 # state -> devices; a card with partitions counts once

A `PoolState` is immutable and replaced when its pool changes. So whatever is derived from it (lines of the grid, what
fits, verdicts of selectors) is cached with it and needs no other invalidation.
"""
