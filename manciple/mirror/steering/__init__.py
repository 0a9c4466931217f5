"""Steering: nodes for pods that opt in, chosen here and nominated in the cluster, whose scheduler still binds them.

    1. a pod with the label has the gate (`names`; an admission policy adds it), so its scheduler leaves it alone
    2. the mirror's scheduler decides as if the gate were not there; `choosing` notes the node, for all pods of a gang
       at once, and counts it as taken from then on
    3. `releasing` sets `status.nominatedNodeName`, for a gang first of each pod, and then removes the gate
    4. the cluster's scheduler tries that node first, allocates and binds; what it did is noted

What was noted stands in a table (`manciple.mirror.models.SteeredPod`), so any replica may decide, and the one that
copies the cluster writes. The transitions, all of them by a conditional update:

    new        -> WAITING, DECIDED      the scheduler has tried it
    WAITING    -> DECIDED               a node takes it
    DECIDED    -> WAITING               none does any more; the pod has changed; the copy was out of date
    DECIDED    -> NOMINATED             written
    NOMINATED  -> DECIDED               another node is better, before the gate is removed
    NOMINATED  -> WAITING               the pod has changed, or no node takes it any more
    NOMINATED  -> RELEASED              the gate is removed
    RELEASED   -> FOLLOWED, ELSEWHERE   placed
    before RELEASED -> LET_GO           the time limit ended, or somebody else removed the gate
    before RELEASED -> REFUSED          the cluster refused a write
    REFUSED    -> WAITING               after a while

Each write tests the pod's uid and version, so whatever was done before a crash is seen, and nothing is done twice. A
pod without the label, or with another gate, is never touched. Nothing is bound, and no claim is written.
"""
