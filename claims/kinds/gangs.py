"""Gangs by annotation: pods that are placed together or not at all, without a PodGroup. PURE.

    metadata:
      annotations:
        manciple.dev/gang: train                  # which gang; of a Job's pods (label batch.kubernetes.io/job-name)
                                                  # without it: that of their Job
        manciple.dev/gang-size: "8"               # so many get a place at once, or none does
        manciple.dev/gang-required-topology: example.com/rack     # all of them on nodes with one value of this label
        manciple.dev/gang-preferred-topology: kubernetes.io/hostname    # likewise, if that is possible

The scheduler works on PodGroups (KEP-4671); a gang by annotation is one that exists in its memory alone (`as_group`),
with a name that no object can have. The topology annotations on a PodGroup mean the same for its pods.
Names as those of others: kueue.x-k8s.io/podset-required-topology, pod-group.scheduling.sigs.k8s.io/min-available.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from claims.kinds.pod_groups import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec, group_name
from claims.kinds.pods import Pod
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import FieldError, invalid, required
from manciple.wire.quantity import whole
from manciple.wire.validation import METADATA, check_dns_subdomain, check_label_key, each

GANG, SIZE = "manciple.dev/gang", "manciple.dev/gang-size"
REQUIRED, PREFERRED = "manciple.dev/gang-required-topology", "manciple.dev/gang-preferred-topology"
#: What the pods of a gang say of it, besides its name.
SAID = (SIZE, REQUIRED, PREFERRED)
ANNOTATIONS = frozenset({GANG, *SAID})
#: What the pods of a Job have; since 1.27, with the name before that as well.
JOB_NAME, JOB_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
#: Pods that are placed at once: as many as are bound in one transaction, several times over.
MOST = 512
#: Begins the name of a group that is none: no object's name has a colon.
_PREFIX = "gang:"

Errors = list[FieldError]


class Topology(NamedTuple):
    """Keys of node labels; "" for none."""

    required: str = ""
    preferred: str = ""


def topology_of(group: PodGroup) -> Topology:
    said = group.metadata.annotations
    return Topology(said.get(REQUIRED, ""), said.get(PREFERRED, ""))


def annotated_name(annotations: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """The name of the gang's group, of whichever pod says so; "" for a pod of none."""
    if SIZE not in annotations:
        return ""
    if name := annotations.get(GANG, ""):
        return f"{_PREFIX}{name}"
    job = labels.get(JOB_NAME, "")
    return f"{_PREFIX}{job}@{labels.get(JOB_UID, '')}" if job else ""


def gang_name(pod: Pod) -> str:
    """The PodGroup that the pod names, or the group that stands for its gang; "" for none."""
    return group_name(pod) or annotated_name(pod.metadata.annotations, pod.metadata.labels)


def is_annotated(group: PodGroup) -> bool:
    """Whether it stands for a gang by annotation: there is no such object."""
    return group.metadata.name.startswith(_PREFIX)


def shown_name(name: str) -> str:
    """As people know it."""
    return name.removeprefix(_PREFIX).partition("@")[0]


def counts_when_done(pod: Pod) -> bool:
    """Whether a pod that succeeded had its place with the gang: pods of a Job end at different times, and those that
    failed are replaced. A gang by name may be started again while pods of its last run are still there."""
    return GANG not in pod.metadata.annotations


def as_group(namespace: str, name: str, pods: Iterable[Pod]) -> PodGroup:
    """pods: that are known of it, at least one. They may differ: the largest size counts, and the oldest's topology."""
    known = sorted(pods, key=lambda one: (one.metadata.creation_timestamp or "~", one.metadata.uid))
    size = max(whole(one.metadata.annotations.get(SIZE, "")) or 0 for one in known)
    said = known[0].metadata.annotations
    kept = {key: said[key] for key in (REQUIRED, PREFERRED) if key in said}
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=size))
    return PodGroup(
        metadata=ObjectMeta(namespace=namespace, name=name, annotations=kept),
        spec=PodGroupSpec(scheduling_policy=policy),
    )


# Validation -----------------------------------------------------------------------------------------------------------

_PATH = METADATA.child("annotations")


def validate_gang(metadata: ObjectMeta) -> Errors:
    """Of a pod."""
    said = metadata.annotations
    if SIZE not in said:
        other = next((key for key in (GANG, REQUIRED, PREFERRED) if key in said), "")
        return [required(_PATH.key(SIZE), f"says how many pods are placed together, with `{other}`")] if other else []
    size, found = whole(said[SIZE]), validate_topology(metadata)
    if size is None or not 1 <= size <= MOST:
        found.append(invalid(_PATH.key(SIZE), said[SIZE], f"must be a number between 1 and {MOST}"))
    if GANG in said:
        found += each(check_dns_subdomain(said[GANG]), _PATH.key(GANG), said[GANG])
    elif not metadata.labels.get(JOB_NAME):
        message = f"must name the gang: the pod belongs to no Job (label `{JOB_NAME}`)"
        found.append(required(_PATH.key(GANG), message))
    return found


def validate_topology(metadata: ObjectMeta) -> Errors:
    """Of a pod or a PodGroup."""
    said = metadata.annotations
    return [
        error
        for key in (REQUIRED, PREFERRED)
        if key in said
        for error in each(check_label_key(said[key]), _PATH.key(key), said[key])
    ]


def validate_gang_update(new: ObjectMeta, old: ObjectMeta) -> Errors:
    """A pod does not change its gang, as it does not change its group."""
    if annotated_name(new.annotations, new.labels) != annotated_name(old.annotations, old.labels):
        return [invalid(_PATH.key(GANG), new.annotations.get(GANG), "field is immutable")]
    return _unchanged(SAID, new, old)


def validate_topology_update(new: ObjectMeta, old: ObjectMeta) -> Errors:
    """A PodGroup does not change where its pods may be: some may have their places by now (upstream:
    schedulingConstraints, which say the same, are immutable)."""
    return _unchanged((REQUIRED, PREFERRED), new, old)


def _unchanged(keys: Iterable[str], new: ObjectMeta, old: ObjectMeta) -> Errors:
    return [
        invalid(_PATH.key(key), new.annotations.get(key), "field is immutable")
        for key in keys
        if new.annotations.get(key) != old.annotations.get(key)
    ]
