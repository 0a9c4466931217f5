"""The placement policy `fragmentation`: pods go where they strand the least.

    demands     what pods usually ask for: the mix by which everything else is judged
    parts       a pod's claims, as what has to be found together
    units       the devices of a node, as what can only be judged together: a share, a card, a group
    outlooks    what is expected of a unit in each state: what of it stays unused, and what its use takes of the node
    scarcity    what it costs to take what others depend on
    nodes       the same for whole nodes, CPU and memory included, followed from placement to placement
    ranking     the nodes for one kind of pod, the best first

docs/placement.md explains the measure, and has the figures.
"""
