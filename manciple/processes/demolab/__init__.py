"""A believable laboratory for `manage.py demo`: 40 nodes, 3 drivers, eight teams; what they hold, what waits and why.

Nothing here is read from anywhere: the same seed and the same moment give the same laboratory. It is written through
the store, so that index rows, events and topics are what they would be if people and agents had done all this.

    hardware    nodes, ResourceSlices, DeviceClasses, as documents
    jobs        who runs what where: a plan that fits the hardware
    documents   a job's pod, claim and template, as documents
    oddities    what is out of order: claims that are stuck, pods that wait, each for a real reason
    history     who held which device in the days before
    usage       how many devices were held at each minute of the last day
    filling     writes all of it
    heartbeat   signs of life of nodes that have no agent
"""
