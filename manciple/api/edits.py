"""How a stored object is replaced by what a change makes of it: one, or several in one commit.

Everything slow happens before the transaction. An edit reads the object, works out its successor, asks whoever has a
say, and writes it on condition that nobody else wrote meanwhile; if somebody did, it starts over with what they left
(`ATTEMPTS` times).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from manciple.api import first_stage
from manciple.api.auditing import page_write
from manciple.store import objects
from manciple.store.hooks import Write
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import ApiError, Conflict, FieldError, Invalid, NotFound
from manciple.wire.identity import Identity
from manciple.wire.managed_fields import track_update
from manciple.wire.registry import Kind

#: How often an update is worked out anew because somebody else wrote in between (upstream: patches retry 5 times).
ATTEMPTS = 5

#: The stored object -> its successor; called again when somebody else wrote first, so it must not keep what it saw.
Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """The object as stored, and whether this write made it."""

    object: Any
    created: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one object, which may be attempted several times.

    subresource: the part that is written. Where that is shown as another document (`Kind.projections`), checks see the
    documents, and the whole object is prepared and validated.
    within: what each attempt happens in, such as the request that asks for it.
    """

    kind: Kind
    change: Change
    namespace: str
    name: str
    _: KW_ONLY
    identity: Identity
    subresource: str = ""
    manager: str = ""  # who owns the changed fields; "" where the change itself says so
    dry_run: bool = False
    verb: str = "patch"
    within: Callable[[], AbstractContextManager[None]] = nullcontext

    def made(self) -> WriteAnswer:
        """Raises: BadRequest, Invalid, NotFound, Conflict."""
        written = page_write(
            self.verb,
            self.kind,
            identity=self.identity,
            namespace=self.namespace,
            name=self.name,
            subresource=self.subresource,
            dry_run=self.dry_run,
        )
        with written:
            # Most often this process wrote the object last. A failure with that guess proves nothing: read and retry.
            guess = self._guess()
            for remaining in reversed(range(ATTEMPTS)):
                try:
                    return self._attempt(guess or self._current(), guessed=guess is not None)
                except ApiError as error:
                    if not remaining or not (guess or isinstance(error, Conflict)):
                        raise
                guess = None
            raise AssertionError("the last attempt returns or raises")

    def _guess(self) -> Any:
        return objects.cached(self.kind, self.namespace, self.name)

    def _current(self) -> Any:
        return current(self.kind, self.namespace, self.name)

    def _attempt(self, old: Any, *, guessed: bool) -> WriteAnswer:
        """Raises: Conflict where `old` is not what is stored any more, or is a guess that nothing has tested."""
        new = self._successor(old)
        if new != old:
            reads = self._reads(old)
            return WriteAnswer(
                objects.write(self._work(new), identity=self.identity, reads=reads, dry_run=self.dry_run)
            )
        if guessed:
            raise Conflict.of(self.kind.resource, self.name)
        return WriteAnswer(old)

    def pending(self, *, anew: bool) -> objects.PendingWrite[Any] | WriteAnswer:
        """An attempt that waits to be written with others, or the answer where nothing changes.

        anew: what is stored is read, not guessed.
        Raises: as `made`.
        """
        with self.within():
            guess = None if anew else self._guess()
            old = guess or self._current()
            new = self._successor(old)
            if new != old:
                return objects.PendingWrite(self._work(new), self.identity, self._reads(old))
            if guess is not None:
                raise Conflict.of(self.kind.resource, self.name)
            return WriteAnswer(old)

    def _work(self, new: Any) -> Callable[[objects.Writer], Any]:
        return lambda writer: writer.update(self.kind, new, subresource=self.subresource, owned=True)

    def _reads(self, old: Any) -> list[objects.Read]:
        known = objects.known(self.kind, old)
        return [objects.Read(self.kind, old.metadata.namespace, old.metadata.name, known)]

    def _successor(self, old: Any) -> Any:
        """What `old` becomes, when everybody has been asked. Raises: ApiError."""
        kind, subresource, dry_run = self.kind, self.subresource, self.dry_run
        projection = kind.projections.get(subresource)
        seen: Change = projection.show if projection else lambda obj: obj
        wanted = self.change(old)
        write = Write(
            operation="UPDATE",
            kind=kind,
            subresource=subresource,
            new=seen(wanted),
            old=seen(old),
            identity=self.identity,
            dry_run=dry_run,
            verb=self.verb,
            version=first_stage.version(),
            options=first_stage.options("UpdateOptions", dry_run=dry_run),
        )
        first_stage.ask_gates(write)
        new = successor(kind, wanted, old, subresource="" if projection else subresource)
        if self.manager:
            now = timestamp(datetime.now(UTC))
            new = track_update(kind, new, old, manager=self.manager, subresource=subresource, now=now)
        first_stage.ask_checks(structs.replace(write, new=seen(new)))
        return new


# Several at once ------------------------------------------------------------------------------------------------------


def made_together(edits: Sequence[Edit]) -> list[WriteAnswer | Exception]:
    """Makes them in as few commits as possible; how each ended, in their order."""
    outcomes: dict[int, WriteAnswer | Exception] = {}
    left = list(range(len(edits)))
    for remaining in reversed(range(ATTEMPTS)):
        anew = remaining < ATTEMPTS - 1
        outcomes.update(zip(left, _attempted([edits[place] for place in left], anew=anew), strict=True))
        # As in `Edit.made`: a guess that failed says nothing, and whom somebody else forestalled tries again.
        left = [place for place in left if isinstance(outcomes[place], Conflict if anew else ApiError)]
        if not left:
            break
    return [outcomes[place] for place in range(len(edits))]


def _attempted(edits: Sequence[Edit], *, anew: bool) -> list[WriteAnswer | Exception]:
    pending = [_pending(edit, anew=anew) for edit in edits]
    objects.settle([one for one in pending if isinstance(one, objects.PendingWrite)])
    return [_outcome(one) if isinstance(one, objects.PendingWrite) else one for one in pending]


def _pending(edit: Edit, *, anew: bool) -> objects.PendingWrite[Any] | WriteAnswer | Exception:
    try:
        return edit.pending(anew=anew)
    except Exception as error:  # of this one alone
        return error


def _outcome(pending: objects.PendingWrite[Any]) -> WriteAnswer | Exception:
    try:
        return WriteAnswer(pending.outcome())
    except Exception as error:  # of this one alone
        return error


# What may follow ------------------------------------------------------------------------------------------------------


def current(kind: Kind, namespace: str, name: str) -> Any:
    """The stored object. Raises: NotFound."""
    stored = objects.get(kind, namespace, name)
    if stored is None:
        raise NotFound.of(kind.resource, name)
    return objects.decode(kind, stored.text)


def successor(kind: Kind, new: Any, old: Any, *, subresource: str = "") -> Any:
    """`new` as it may follow `old`: prepared and valid, carrying the resourceVersion it replaces.

    Raises: Conflict where `new` names another resourceVersion or uid; Invalid.
    """
    inheriting = _inheriting(kind, new, old)
    rules: Any = kind.subresources[subresource] if subresource else kind
    prepared = rules.prepare_update(inheriting, old)
    refuse_wrong(kind, prepared, kind.update_rule(first_stage.version(), subresource)(prepared, old))
    return prepared


def _inheriting(kind: Kind, new: Any, old: Any) -> Any:
    """`new` with the metadata that an update cannot change (upstream: rest.BeforeUpdate)."""
    meta, kept = new.metadata, old.metadata
    if meta.resource_version and meta.resource_version != kept.resource_version:
        raise Conflict.of(kind.resource, kept.name)
    if meta.uid and meta.uid != kept.uid:
        why = f"Precondition failed: UID in precondition: {meta.uid}, UID in object meta: {kept.uid}"
        raise Conflict.of(kind.resource, kept.name, why)
    inherited = structs.replace(
        meta,
        uid=kept.uid,
        resource_version=kept.resource_version,
        self_link="",
        generation=kept.generation,
        creation_timestamp=kept.creation_timestamp,
        deletion_timestamp=kept.deletion_timestamp,
        deletion_grace_period_seconds=kept.deletion_grace_period_seconds,
    )
    return structs.replace(new, metadata=inherited)


def refuse_wrong(kind: Kind, obj: ApiObject, errors: Sequence[FieldError]) -> None:
    """Raises: Invalid with every one of `errors`."""
    if errors:
        name = obj.metadata.name or obj.metadata.generate_name
        raise Invalid.of(kind=kind.kind, group=kind.group, name=name, errors=errors)
