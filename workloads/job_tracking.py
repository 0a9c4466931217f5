"""The finalizer that keeps a Job's pod until the Job has counted it.

The controller of Jobs removes it where it counts the pod. A pod that has lost its Job is never counted: it loses the
finalizer with the reference to its owner (`untrack_orphan`), or, where the Job is gone and the reference leads nowhere,
in the controller's next turn (`untrack_strays`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.identity import Identity
from manciple.wire.resources import PODS, Key
from workloads.kinds.jobs import JOB, TRACKED
from workloads.view import controller_of


def tracked(pod: Pod) -> Pod:
    others = (one for one in pod.metadata.finalizers if one != TRACKED)
    return replace(pod, metadata=replace(pod.metadata, finalizers=(*others, TRACKED)))


def untracked(pod: Any) -> Any:
    others = tuple(one for one in pod.metadata.finalizers if one != TRACKED)
    return replace(pod, metadata=replace(pod.metadata, finalizers=others))


def untrack_orphan(_writer: Writer, write: Write) -> Any:
    meta = write.new.metadata
    return untracked(write.new) if TRACKED in meta.finalizers and controller_of(meta) is None else None


def untrack_strays(keys: Collection[Key], identity: Identity) -> int:
    """Of these pods, take the finalizer off those whose Job is gone; returns how many there were."""
    with objects.writing(identity=identity) as writer:
        before = writer.revision
        writer.load(POD, keys)
        pods = [
            pod for key in keys if (pod := writer.get(POD, *key)) is not None and TRACKED in pod.metadata.finalizers
        ]
        owned = [(pod, owner) for pod in pods if (owner := controller_of(pod.metadata)) is not None]
        writer.load(JOB, [(pod.metadata.namespace, owner.name) for pod, owner in owned])
        for pod, owner in owned:
            job = writer.get(JOB, pod.metadata.namespace, owner.name)
            if job is None or job.metadata.uid != owner.uid:
                writer.update(POD, untracked(pod))
        return writer.revision - before


def register() -> None:
    hooks.register_rule(untrack_orphan, operations={"UPDATE"}, resources={PODS})
