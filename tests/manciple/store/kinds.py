"""Two kinds as simple as kinds can be, and builders for their objects."""

from __future__ import annotations

from typing import Annotated, Any

from manciple.wire.base import ApiObject, ObjectMeta, OwnerReference, Value, pb
from manciple.wire.registry import Kind


class NoteSpec(Value):
    text: Annotated[str, pb(1)] = ""
    shelf: Annotated[str, pb(2)] = ""


class Note(ApiObject):
    spec: Annotated[NoteSpec, pb(2)] = NoteSpec()
    status: Annotated[str, pb(3)] = ""


class Shelf(ApiObject):
    width: Annotated[int, pb(2)] = 0


def _unchanged(obj: Any, _old: Any = None) -> Any:
    return obj


def _valid(_obj: Any, _old: Any = None) -> tuple[()]:
    return ()


#: A note on a shelf gets 30 seconds of grace, on the low one none; generations count its spec.
NOTES = Kind(
    group="test.example.com",
    version="v1",
    plural="notes",
    type=Note,
    prepare_create=_unchanged,
    prepare_update=_unchanged,
    validate_create=_valid,
    validate_update=_valid,
    selectable=lambda note: {"spec.shelf": note.spec.shelf},
    generation_of=lambda note: note.spec,
    grace_seconds=lambda note: {"": None, "low": 0}.get(note.spec.shelf, 30),
)

SHELVES = Kind(
    group="test.example.com",
    version="v1",
    plural="shelves",
    namespaced=False,
    type=Shelf,
    prepare_create=_unchanged,
    prepare_update=_unchanged,
    validate_create=_valid,
    validate_update=_valid,
)


def note(name: str = "", *, namespace: str = "home", text: str = "", shelf: str = "", **meta: Any) -> Note:
    return Note(metadata=ObjectMeta(name=name, namespace=namespace, **meta), spec=NoteSpec(text=text, shelf=shelf))


def shelf(name: str, *, width: int = 0, **meta: Any) -> Shelf:
    return Shelf(metadata=ObjectMeta(name=name, **meta), width=width)


def owned_by(owner: ApiObject, *, blocking: bool = False, controller: bool = False) -> OwnerReference:
    """A reference to `owner`, which the store has returned."""
    return OwnerReference(
        api_version=owner.api_version,
        kind=owner.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=controller or None,
        block_owner_deletion=blocking or None,
    )
