"""The templates that a DaemonSet or StatefulSet has had, each a ControllerRevision. Values only.

`history_of` says which revision is the current one (to create, or to give a new number, where the workload went back to
a former template), and which are to be deleted. Source: pkg/controller/history/controller_history.go and
pkg/controller/daemon/update.go (constructHistory, cleanupHistory) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from manciple.wire import codec
from manciple.wire.base import ApiObject, ObjectMeta
from workloads.kinds.controller_revisions import ControllerRevision
from workloads.kinds.templates import PodTemplateSpec, owner_reference, template_hash

HASH = "controller-revision-hash"


@dataclass(frozen=True, slots=True)
class History:
    """current: the revision of the template, as it shall be. is_new: it is to be created. is_changed: it is there, and
    is to be updated. old: the others. surplus: of them, those to delete.
    """

    current: ControllerRevision
    is_new: bool
    is_changed: bool
    old: Sequence[ControllerRevision]
    surplus: Sequence[ControllerRevision]

    @property
    def hash(self) -> str:
        return self.current.metadata.labels.get(HASH, "")


def data_of(template: PodTemplateSpec) -> dict[str, Any]:
    """The patch that makes a workload have this template (upstream: getPatch)."""
    return {"spec": {"template": {**codec.to_builtins(template), "$patch": "replace"}}}


def history_of(
    owner: ApiObject,
    template: PodTemplateSpec,
    known: Sequence[ControllerRevision],
    *,
    collisions: int,
    kept: int,
    used: Collection[str],
    annotations: Mapping[str, str],
) -> History:
    """kept: how many old ones stay. used: hashes that pods have, whose revisions stay besides. annotations: of a new
    one.
    """
    data = data_of(template)
    newest = max((one.revision for one in known), default=0)
    same = sorted((one for one in known if one.data == data), key=lambda one: one.revision)
    if same:
        found = same[-1]
        current = found if found.revision == newest else replace(found, revision=newest + 1)
        old = [one for one in known if one.metadata.name != found.metadata.name]
        return History(current, False, current != found, old, _surplus(old, kept, used))
    hashed = template_hash(template, collisions)
    current = ControllerRevision(
        api_version="apps/v1",
        kind="ControllerRevision",
        metadata=ObjectMeta(
            name=f"{owner.metadata.name}-{hashed}",
            namespace=owner.metadata.namespace,
            labels={**template.metadata.labels, HASH: hashed},
            annotations=dict(annotations),
            owner_references=(owner_reference(owner),),
        ),
        data=data,
        revision=newest + 1,
    )
    return History(current, True, False, known, _surplus(known, kept, used))


def _surplus(old: Sequence[ControllerRevision], kept: int, used: Collection[str]) -> list[ControllerRevision]:
    unused = sorted((one for one in old if one.metadata.labels.get(HASH) not in used), key=lambda one: one.revision)
    return unused[: max(0, len(old) - kept)]
