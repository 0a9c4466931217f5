"""The placement policy `fragmentation`: pods go where they strand the least.

    mix        what pods usually ask for, read against the classes and devices that there are
    units      the devices of a node as what can only be judged together (a share, a card, a group), and what is
               expected of them in each state: what stays unused, and what their use takes of the node
    policy     the same for whole nodes, cpu and memory included; the nodes for one kind of pod, the best first; the
               score for the allocator (`Fragmentation`) and the policy as the scheduler uses it

`mix` and `units` are pure. docs/explanation/placement.md explains the measure, and has the figures.
"""
