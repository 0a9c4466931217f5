"""The templates that a DaemonSet or StatefulSet has had, each a ControllerRevision.

`history_of` says which revision is the current one (to create, or to give a new number, where the workload went back to
a former template), `surplus` which are to be deleted, `record` writes it. Source:
pkg/controller/history/controller_history.go and pkg/controller/daemon/update.go (constructHistory, cleanupHistory) of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from manciple.store.objects import Writer
from manciple.wire import codec
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.errors import AlreadyExists, ApiError
from workloads.kinds.controller_revisions import CONTROLLER_REVISION, ControllerRevision, owner_of
from workloads.kinds.templates import PodTemplateSpec, owner_reference, template_hash

#: Of pods: their template; of the revisions of DaemonSets: their hash.
HASH = "controller-revision-hash"


@dataclass(frozen=True, slots=True)
class History:
    """current: the revision of the template, as it shall be. is_new: it is to be created. is_changed: it is there, and
    is to be updated. old: the others, oldest first. adopted: of all, those that nobody controls.
    """

    current: ControllerRevision
    is_new: bool
    is_changed: bool
    old: Sequence[ControllerRevision]
    adopted: Sequence[ControllerRevision]

    @property
    def is_written(self) -> bool:
        return not (self.is_new or self.is_changed or self.adopted)


def data_of(template: PodTemplateSpec) -> dict[str, Any]:
    """The patch that makes a workload have this template (upstream: getPatch)."""
    return {"spec": {"template": {**codec.to_builtins(template), "$patch": "replace"}}}


def template_of(revision: ControllerRevision) -> PodTemplateSpec | None:
    """None where it holds none: anybody may have written it."""
    try:
        document = {key: value for key, value in revision.data["spec"]["template"].items() if key != "$patch"}
        return codec.decode_value(PodTemplateSpec, document)
    except (AttributeError, KeyError, TypeError, ApiError, msgspec.ValidationError):
        return None


def history_of(
    owner: ApiObject,
    template: PodTemplateSpec,
    known: Iterable[ControllerRevision],
    *,
    collisions: int,
    label: str = HASH,
) -> History:
    """known: also those to adopt, which nobody controls. label: of revisions, with the hash."""
    data, ordered = data_of(template), sorted(known, key=lambda one: (one.revision, one.metadata.name))
    orphans = [one for one in ordered if owner_of(one) is None]
    newest = ordered[-1].revision if ordered else 0
    same = [one for one in ordered if one.data == data]
    if same:
        found = same[-1]
        current = found if found.revision == newest else replace(found, revision=newest + 1)
        old = [one for one in ordered if one.metadata.name != found.metadata.name]
        return History(current, False, current != found, old, orphans)
    hashed = template_hash(template, collisions)
    current = ControllerRevision(
        api_version="apps/v1",
        kind="ControllerRevision",
        metadata=ObjectMeta(
            name=f"{owner.metadata.name}-{hashed}",
            namespace=owner.metadata.namespace,
            labels={**template.metadata.labels, label: hashed},
            annotations=dict(owner.metadata.annotations),
            owner_references=(owner_reference(owner),),
        ),
        data=data,
        revision=newest + 1,
    )
    return History(current, True, False, ordered, orphans)


def surplus(
    old: Sequence[ControllerRevision], number: int, is_used: Callable[[ControllerRevision], bool]
) -> list[ControllerRevision]:
    """So many of the oldest that are not in use."""
    return [one for one in old if not is_used(one)][: max(0, number)]


def record(writer: Writer, owner: ApiObject, history: History, surplus: Iterable[ControllerRevision]) -> bool:
    """False, and nothing is written: the name of the new revision is taken, by something else."""
    for one in history.adopted:
        if one.metadata.name != history.current.metadata.name:
            writer.update(CONTROLLER_REVISION, _owned(one, owner))
    try:
        if history.is_new:
            with writer.savepoint():
                writer.create(CONTROLLER_REVISION, history.current)
        elif not history.is_written:
            writer.update(CONTROLLER_REVISION, _owned(history.current, owner))
    except AlreadyExists:
        return False
    for one in surplus:
        writer.delete(CONTROLLER_REVISION, one.metadata.namespace, one.metadata.name, uid=one.metadata.uid)
    return True


def _owned(revision: ControllerRevision, owner: ApiObject) -> ControllerRevision:
    if owner_of(revision) is not None:
        return revision
    references = (*revision.metadata.owner_references, owner_reference(owner))
    return replace(revision, metadata=replace(revision.metadata, owner_references=references))
