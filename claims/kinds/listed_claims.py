"""The list spec.resources of a pod: claims of cdi.k8s.io that the pod uses (KEP-3063, first draft). PURE.

The draft's text and its example write a template differently: with a `spec`, and with the fields of one directly. Both
are read, and kept as written. The draft gives no protobuf numbers: fields are numbered in the order in which it lists
them.
"""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import ObjectMeta, Raw, Value, pb

PACKAGE = "io.k8s.api.cdi.v1alpha1"

#: The label of nodes whose container runtime takes CDI devices; the agent sets it. The draft gives it no name, and
#: agents may set none in the draft's own domain.
NODE_LABEL, NODE_LABEL_VALUE = "manciple.dev/cdi", "true"


class ResourceClaimSpec(Value):
    """What is wanted. Immutable.

    resource_class_name: names the class, and so the plugin. parameters: for that plugin alone. allocation_mode:
    Immediate, or Delayed (the default) until a pod wants to use the claim.
    """

    resource_class_name: Annotated[str, pb(1)] = ""
    parameters: Annotated[Raw, pb(2, encoding="raw")] = None
    allocation_mode: Annotated[str, pb(3)] = ""


class PodResourceTemplate(ResourceClaimSpec):
    """The claim to be made for a pod, within the pod.

    metadata: labels and annotations of the claim, nothing else. spec: what the claim asks for; its fields may also
    stand here themselves.
    """

    metadata: Annotated[ObjectMeta, pb(4)] = ObjectMeta()
    spec: Annotated[ResourceClaimSpec | None, pb(5)] = None


class PodResource(Value):
    """One entry of spec.resources of a pod where that is a list: a claim that the pod uses.

    name: how containers refer to it. Exactly one of the other two is set. resource_claim_name: a claim in the pod's
    namespace. template: of the claim POD-NAME that is made for the pod and owned by it.
    """

    name: Annotated[str, pb(1)] = ""
    resource_claim_name: Annotated[str | None, pb(2)] = None
    template: Annotated[PodResourceTemplate | None, pb(3)] = None
