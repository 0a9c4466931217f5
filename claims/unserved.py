"""What a pod may ask for and is not done here: refused when the pod is made, so that nobody waits for it in vain.

A RuntimeClass decides where a pod may run and what running it costs besides its containers; none is served, so a pod
that names one is refused as where the class is missing. A group of pods that are to be scheduled together is dropped
with a warning. (Upstream drops it without one, as its gate GenericWorkload is off.)
Upstream: plugin/pkg/admission/runtimeclass/admission.go, pkg/api/pod/util.go (dropDisabledFields).
"""

from __future__ import annotations

from msgspec import structs

from claims.kinds.pods import Pod
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.errors import Forbidden


def register() -> None:
    hooks.register_rule(check_pod, operations={"CREATE"}, resources={"pods"})


def check_pod(_writer: Writer, write: Write) -> Pod | None:
    """The new pod without what is dropped. Raises: Forbidden."""
    pod: Pod = write.new
    if pod.spec.runtime_class_name:
        raise _forbidden(pod, f'RuntimeClass "{pod.spec.runtime_class_name}" not found (none is served here)')
    if pod.spec.overhead:
        raise _forbidden(pod, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if pod.spec.scheduling_group is None:
        return None
    hooks.warn("spec.schedulingGroup is dropped: pods are not scheduled as a group here")
    return structs.replace(pod, spec=structs.replace(pod.spec, scheduling_group=None))


def _forbidden(pod: Pod, why: str) -> Forbidden:
    name = pod.metadata.name
    return Forbidden(f'pods "{name}" is forbidden: pod rejected: {why}', details={"name": name, "kind": "pods"})
