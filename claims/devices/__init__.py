"""The devices as everybody reads them: what is published, who holds what, and in which state each device is.

Below the pages and below the scheduler, and without any UI. `cache.read_devices()` answers with a `DeviceSnapshot`:

    snapshot.pools[driver, pool]    # a `PoolState`: the pool as published, its holders, the state of each device
    snapshot.candidates             # every published device; the same tuple as long as nothing is published anew
    snapshot.counts                 # state -> devices, a card that is cut into partitions counted once

A `PoolState` is replaced when anything about its pool changes, and never changes itself: whatever is derived from one
(lines of the grid, what fits, verdicts of selectors) is kept with it and needs no other invalidation.
"""
