"""A believable laboratory for `manage.py demo`: 40 nodes, 3 drivers, eight teams; what they hold, what waits and why.

Nothing here is read from anywhere: the same seed and the same moment give the same laboratory. It is written through
the store, so that index rows, events and topics are what they would be if people and agents had done all this.

    hardware    nodes, ResourceSlices, DeviceClasses, as documents; signs of life of nodes that have no agent
    jobs        who runs what where, a plan that fits the hardware, as documents; what is stuck or waits
    filling     writes all of it, and the days before: who held which device, how many at each minute of the last
    pages       every page that shows it, and their screenshots
"""
