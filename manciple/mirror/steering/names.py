"""What steering and the admission policy that adds its gate agree on. Pure: the controller that ends gates reads it.

A pod is steered that has the label and, before kube-scheduler may look at it, the gate:

    metadata: {labels: {manciple.dev/steer: "true"}}
    spec:     {schedulingGates: [{name: manciple.dev/steering}]}
"""

from __future__ import annotations

from typing import Final

#: The label by which a pod opts in.
LABEL: Final = "manciple.dev/steer"
LABEL_VALUE: Final = "true"
#: The scheduling gate that keeps kube-scheduler from the pod until a node is nominated.
GATE: Final = "manciple.dev/steering"
#: Seconds from a pod's creation after which its gate is removed without a nomination.
TIME_LIMIT: Final = 300.0
