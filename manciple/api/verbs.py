"""The verbs of the API, for the REST views and the pages alike: get, list, create, update, patch, delete, replace.

Every read is of the newest state, so it is "not older than" any revision that exists. A revision that does not exist
yet is answered with a Timeout, as upstream does when its cache does not catch up; a list of an exact past revision is
read from the log as far as that reaches back, and is Expired otherwise.

Writes prepare, validate, admit and store. Everything slow happens before the transaction: an `Edit` reads the object,
works out its successor, runs the gates and checks, and writes on condition that nobody else wrote meanwhile. If
somebody did, it starts over from what they left (`ATTEMPTS` times). A client that named a resourceVersion wants exactly
that one replaced, and gets the Conflict.

In a mirror that acts, what a page writes goes to the cluster instead (`manciple.api.destination`).

`dry_run` goes the whole way and rolls the transaction back. Source: apiserver/pkg/registry/generic/registry/store.go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from manciple.access import authorization
from manciple.access.authorization import on_object
from manciple.access.kinds import roles
from manciple.api import namespaces
from manciple.api.auditing import page_write
from manciple.api.destination import Destination, Document, Successor
from manciple.api.requests import ListOptions, propagation_of, revision
from manciple.per_process import PerProcess
from manciple.store import event_log, hooks, objects, records
from manciple.store.hooks import Write
from manciple.store.records import DeletionAnswer, Page, Stored
from manciple.store.writer import NAME_ATTEMPTS, initialise
from manciple.telemetry import traces
from manciple.wire import codec
from manciple.wire.base import RANDOM, ApiObject, ObjectMeta, new_uid, timestamp
from manciple.wire.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    FieldError,
    Invalid,
    NotFound,
    invalid,
)
from manciple.wire.identity import Identity, manager_of
from manciple.wire.machinery import DeleteOptions, Preconditions
from manciple.wire.managed_fields import track_create, track_update
from manciple.wire.registry import Kind, registry
from manciple.wire.validation import generate_name

# Reading --------------------------------------------------------------------------------------------------------------


class TooLargeRevision(ApiError):
    """504: the client has seen a revision that this store has not reached."""

    code, reason = 504, "Timeout"

    @classmethod
    def of(cls, wanted: int, current: int) -> TooLargeRevision:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        return cls(
            f"Too large resource version: {wanted}, current: {current}",
            details={"causes": [cause], "retryAfterSeconds": 1},
        )


def get(kind: Kind, *, namespace: str, name: str, resource_version: str = "") -> Stored:
    """Raises: NotFound; BadRequest for a strange revision, TooLargeRevision."""
    if wanted := revision(resource_version):
        _check_reached(wanted, event_log.latest_revision())
    stored = objects.get(kind, namespace, name)
    if stored is None:
        raise NotFound.of(kind.resource, name)
    return stored


def list_page(kind: Kind, *, namespace: str, options: ListOptions) -> Page:
    """Raises: BadRequest for a strange continue token; Expired, TooLargeRevision."""
    wanted = int(options.resource_version or 0)
    exactly = wanted if options.resource_version_match == "Exact" and not options.continue_token else 0
    if exactly:
        _check_reached(exactly, event_log.latest_revision())
    page = objects.list(
        kind,
        namespace=namespace,
        labels=None if options.labels.empty else options.labels,
        fields=None if options.fields.empty else options.fields,
        limit=options.limit,
        continue_token=options.continue_token,
        exactly=exactly,
    )
    if wanted and not options.continue_token:
        _check_reached(wanted, page.revision)
    return page


def _check_reached(wanted: int, current: int) -> None:
    if wanted > current:
        raise TooLargeRevision.of(wanted, current)


# Writing --------------------------------------------------------------------------------------------------------------


#: Where pages write instead of the store here.
elsewhere = PerProcess[Destination | None](lambda: None)


def destination() -> Destination | None:
    """Where the request that is being answered writes; None for the store here."""
    there = elsewhere.value
    if there is None:
        return None
    request = records.origin()
    return None if request is None or request.resource else there


#: Kinds that a PUT creates where they are missing (upstream: AllowCreateOnUpdate).
CREATED_BY_UPDATE = frozenset(
    {
        "endpoints",
        "events",
        "events.events.k8s.io",
        "leases.coordination.k8s.io",
        "limitranges",
        "services",
        *(kind.resource for kind in roles.KINDS),
    }
)
#: Kinds whose updates must name the resourceVersion they replace (upstream: AllowUnconditionalUpdate is false).
CONDITIONAL = frozenset(
    {
        "customresourcedefinitions.apiextensions.k8s.io",
        "leases.coordination.k8s.io",
        "poddisruptionbudgets.policy",
        "resourcepoolstatusrequests.resource.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)


def create(
    kind: Kind,
    obj: Any,
    *,
    namespace: str = "",
    identity: Identity,
    manager: str = "",
    dry_run: bool = False,
    sets_managed_fields: bool = False,
    document: Document | None = None,
) -> Any:
    """Store a new object in `namespace`; returns it with what the server filled in.

    `manager` (the identity's where none is named) owns its fields, unless the object has managedFields of its own
    (`sets_managed_fields`). document: the text that `obj` is of, where that may have more than our types know.

    Raises: BadRequest, Invalid, AlreadyExists; NotFound for a missing namespace, Forbidden for one being deleted.
    """
    name, there = obj.metadata.name, destination()
    with page_write("create", kind, identity=identity, namespace=namespace, name=name, dry_run=dry_run):
        if there is not None:
            new = placed(kind, obj, namespace=namespace)
            return there.create(kind, new, identity=identity, dry_run=dry_run, document=document)
        write = Write(
            operation="CREATE",
            kind=kind,
            new=placed(kind, obj, namespace=namespace),
            identity=identity,
            dry_run=dry_run,
            verb="create",
            version=hooks.asked_version(),
            options=hooks.asked_options("CreateOptions", dry_run=dry_run),
        )
        hooks.ask_gates(write)
        prepared = kind.prepare_create(hooks.completed(write))
        if not sets_managed_fields:
            prepared = track_create(
                kind,
                prepared,
                manager=manager or manager_of(identity),
                now=timestamp(datetime.now(UTC)),
                owned=kind.without_admission(prepared, write.new),
            )
        prepared = _mutated(write, prepared)
        for remaining in reversed(range(NAME_ATTEMPTS)):
            try:
                return _create(structs.replace(write, new=_named(prepared)))
            except AlreadyExists as error:
                if prepared.metadata.name:
                    raise
                if not remaining:
                    why = "the server was not able to generate a unique name for the object"
                    raise AlreadyExists(f"{error.message}, {why}", details=error.details) from None
    raise AssertionError("the last attempt returns or raises")


def _mutated(write: Write, prepared: Any) -> Any:
    """A new object as mutating policies and webhooks want it, completed and prepared again where they change it.

    Its owners are those of before: what admission sets nobody owns. Raises: ApiError.
    """
    kind, place = write.kind, write.new.metadata.namespace

    def completed(new: Any) -> Any:
        kept = structs.replace(new.metadata, managed_fields=prepared.metadata.managed_fields)
        there = placed(kind, structs.replace(new, metadata=kept), namespace=place)
        return kind.prepare_create(hooks.completed(structs.replace(write, new=there)))

    return hooks.mutated(structs.replace(write, new=prepared), completed)


def _named(obj: Any) -> Any:
    """With a name made from generateName, where it has none: checks see it as it will be."""
    meta = obj.metadata
    if meta.name or not meta.generate_name:
        return obj
    return structs.replace(obj, metadata=structs.replace(meta, name=generate_name(meta.generate_name, RANDOM.value)))


def _create(write: Write) -> Any:
    """Raises: Invalid, AlreadyExists, and what checks and rules raise."""
    kind, obj, uid = write.kind, write.new, new_uid()
    seen = initialise(kind, obj, name=obj.metadata.name, uid=uid, now=datetime.now(UTC))
    try:
        refuse_wrong(kind, seen, kind.create_rule(hooks.asked_version())(seen))
    except Invalid:
        hooks.ask_precedence(write)
        raise
    hooks.ask_checks(structs.replace(write, new=seen))
    made = objects.write(
        lambda writer: writer.create(kind, obj, uid=uid, rules_first=True, owned=True),
        identity=write.identity,
        reads=_reads_of_creation(kind, obj),
        dry_run=write.dry_run,
    )
    if kind.resource == "pods" and traces.recorder.value and not write.dry_run:
        _trace_creation(made, write.identity)
    return made


def _trace_creation(pod: ApiObject, identity: Identity) -> None:
    """Begin the pod's trace with the request that created it (`manciple.telemetry.traces`)."""
    request, meta = records.origin(), pod.metadata
    traces.tell(
        meta.uid,
        "create",
        began=time.time() if request is None else request.received.timestamp(),
        linked=request.traceparent if request is not None else "",
        attributes={
            "k8s.namespace.name": meta.namespace,
            "k8s.pod.name": meta.name,
            "enduser.id": identity.name,
            "manciple.request": request.audit_id if request is not None else "",
        },
    )


def update(
    kind: Kind,
    obj: Any,
    *,
    namespace: str = "",
    name: str,
    identity: Identity,
    subresource: str = "",
    manager: str = "",
    dry_run: bool = False,
    complete: Callable[[Any, Any], Any] = lambda new, _old: new,
    documents: tuple[Document, Document] | None = None,
) -> WriteAnswer:
    """Replace an object (or the part of it that `subresource` owns). `manager` is who owns changed fields then.

    complete: (new, old) -> new with what the client could not say in its version. documents: as for `modify`.

    Raises: BadRequest, Invalid, NotFound, Conflict.
    """
    wanted = placed(kind, obj, namespace=namespace, name=name)
    if (there := destination()) is not None:
        with page_write("update", kind, identity=identity, namespace=namespace, name=name, dry_run=dry_run):
            edited: WriteAnswer = there.modify(
                kind,
                lambda old: complete(wanted, old),
                namespace=namespace,
                name=name,
                identity=identity,
                dry_run=dry_run,
                subresource=subresource,
                revision=wanted.metadata.resource_version,
                documents=documents,
            )
            return edited
    creates = kind.resource in CREATED_BY_UPDATE and not subresource
    if creates and objects.get(kind, namespace, name) is None:
        return _create_by_update(kind, wanted, namespace=namespace, identity=identity, manager=manager, dry_run=dry_run)
    edit = replacement(
        kind,
        wanted,
        identity=identity,
        subresource=subresource,
        manager=manager,
        dry_run=dry_run,
        complete=complete,
    )
    return edit.made()


def replacement(
    kind: Kind,
    wanted: Any,
    *,
    identity: Identity,
    subresource: str = "",
    manager: str = "",
    dry_run: bool = False,
    complete: Callable[[Any, Any], Any] = lambda new, _old: new,
) -> Edit:
    """What `update` makes of an object that is there, which is to become `wanted` (`placed`).

    Raises: Invalid, NotFound.
    """
    meta = wanted.metadata
    if (kind.is_open or kind.resource in CONDITIONAL) and not meta.resource_version:
        if objects.get(kind, meta.namespace, meta.name) is None:
            raise NotFound.of(kind.resource, meta.name)
        wrong = invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise Invalid.of(
            kind=kind.plural, group=kind.group, name=meta.name, errors=[wrong]
        )  # upstream names the plural
    return Edit(
        kind,
        lambda old: complete(wanted, old),
        meta.namespace,
        meta.name,
        identity=identity,
        subresource=subresource,
        manager=manager or manager_of(identity),
        dry_run=dry_run,
        verb="update",
    )


def modify(
    kind: Kind,
    change: Change,
    *,
    namespace: str = "",
    name: str,
    identity: Identity,
    subresource: str = "",
    manager: str = "",
    dry_run: bool = False,
    sets_managed_fields: bool = False,
    verb: str = "patch",
    documents: tuple[Document, Document] | None = None,
) -> WriteAnswer:
    """Replace an object by what `change` makes of it. This is how patches and in-process edits are written.

    `manager` (the identity where none is named) owns the changed fields, unless `change` sets managedFields itself
    (`sets_managed_fields`). verb: what checks take the request for, "patch" or "update". documents: the change as
    texts, before and after, where these may have more than our types know.

    Raises: BadRequest, Invalid, NotFound, Conflict.
    """
    if (there := destination()) is not None:
        with page_write(verb, kind, identity=identity, namespace=namespace, name=name, dry_run=dry_run):
            edited: WriteAnswer = there.modify(
                kind,
                change,
                namespace=namespace,
                name=name,
                identity=identity,
                dry_run=dry_run,
                subresource=subresource,
                documents=documents,
            )
            return edited
    edit = Edit(
        kind,
        change,
        namespace,
        name,
        identity=identity,
        subresource=subresource,
        manager="" if sets_managed_fields else manager or manager_of(identity),
        dry_run=dry_run,
        verb=verb,
    )
    return edit.made()


def delete(
    kind: Kind, *, namespace: str = "", name: str, identity: Identity, options: DeleteOptions | None = None
) -> DeletionAnswer:
    """Delete an object, or mark it for deletion where finalizers or a grace period hold it.

    Raises: NotFound, Conflict for preconditions that do not hold, Forbidden.
    """
    options = options or DeleteOptions()
    dry_run, there = bool(options.dry_run), destination()
    with page_write("delete", kind, identity=identity, namespace=namespace, name=name, dry_run=dry_run):
        if there is not None:
            return there.delete(kind, namespace=namespace, name=name, identity=identity, options=options)
        _admit_deletion(kind, current(kind, namespace, name), identity, options)
        return remove(kind, namespace=namespace, name=name, identity=identity, options=options)


def _admit_deletion(kind: Kind, old: Any, identity: Identity, options: DeleteOptions) -> None:
    """Raises: ApiError where the first stage refuses it."""
    write = Write(
        operation="DELETE",
        kind=kind,
        old=old,
        identity=identity,
        dry_run=bool(options.dry_run),
        verb="delete",
        version=hooks.asked_version(),
        options=codec.to_builtins(_identified(options)),
    )
    hooks.ask_all(write)


def remove(kind: Kind, *, namespace: str, name: str, identity: Identity, options: DeleteOptions) -> DeletionAnswer:
    """`delete`, where the first stage has admitted something that comes to the same, such as an eviction.

    Raises: NotFound, Conflict for preconditions that do not hold, Forbidden.
    """
    dry_run, work = bool(options.dry_run), _removal(kind, namespace, name, options)
    reads = [objects.Read(kind, namespace, name)]
    deletion = objects.write(work, identity=identity, reads=reads, dry_run=dry_run)
    if kind.resource == namespaces.NAMESPACES and not dry_run:
        namespaces.release_if_empty(name)
    return deletion


def _removal(
    kind: Kind, namespace: str, name: str, options: DeleteOptions
) -> Callable[[objects.Writer], DeletionAnswer]:
    """What the transaction does."""
    wanted = options.preconditions or Preconditions()
    revision = wanted.resource_version or ""
    ends_namespace = kind.resource == namespaces.NAMESPACES

    def work(writer: objects.Writer) -> DeletionAnswer:
        if ends_namespace:
            namespaces.hold(writer, kind, name, resource_version=revision)
        return writer.delete(
            kind,
            namespace,
            name,
            uid=wanted.uid or "",
            resource_version="" if ends_namespace else revision,
            grace_seconds=options.grace_period_seconds,
            propagation=propagation_of(options, orphans=bool(kind.orphaning)),
        )

    return work


def _identified(options: DeleteOptions) -> DeleteOptions:
    return structs.replace(options, kind="DeleteOptions", api_version="meta.k8s.io/v1")


def placed(kind: Kind, obj: Any, *, namespace: str, name: str = "") -> Any:
    """`obj` in the namespace, and under the name, that the path gives. Raises: BadRequest where it names others."""
    meta = obj.metadata
    check_place(kind, meta, namespace=namespace, name=name)
    if meta.namespace == namespace and obj.kind == kind.kind and obj.api_version == kind.api_version:
        return obj
    here = structs.replace(meta, namespace=namespace)
    return structs.replace(obj, api_version=kind.api_version, kind=kind.kind, metadata=here)


def check_place(kind: Kind, meta: ObjectMeta, *, namespace: str, name: str) -> None:
    """Raises: BadRequest where a body names another namespace or another name than the path."""
    if kind.namespaced and meta.namespace and meta.namespace != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if name and not meta.name:
        raise BadRequest(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if name and meta.name != name:
        raise BadRequest(f"the name of the object ({meta.name}) does not match the name on the URL ({name})")


def _reads_of_creation(kind: Kind, obj: ApiObject) -> list[objects.Read]:
    """What stands in the way of a new object, and its namespace, which the rules ask for."""
    meta, namespaces = obj.metadata, registry.find("", "v1", "namespaces")
    reads = [objects.Read(kind, meta.namespace, meta.name)] if meta.name else []
    if kind.namespaced and namespaces is not None:
        reads.append(objects.Read(namespaces, "", meta.namespace))
    return reads


def _create_by_update(
    kind: Kind, wanted: Any, *, namespace: str, identity: Identity, manager: str, dry_run: bool
) -> WriteAnswer:
    """A PUT of a missing object. One that names a uid meant an object that is gone. Raises: Forbidden."""
    meta = wanted.metadata
    authorization.demand(identity, on_object("create", kind, namespace=namespace, name=meta.name))
    if meta.uid:
        why = f"Precondition failed: UID in precondition: {meta.uid}, UID in object meta: "
        raise Conflict.of(kind.resource, meta.name, why)
    fresh = structs.replace(wanted, metadata=structs.replace(meta, resource_version=""))
    made = create(kind, fresh, namespace=namespace, identity=identity, manager=manager, dry_run=dry_run)
    return WriteAnswer(made, created=True)


# Collections ----------------------------------------------------------------------------------------------------------


def delete_all(
    kind: Kind, *, namespace: str, selected: ListOptions, identity: Identity, options: DeleteOptions
) -> Page:
    """Delete what `selected` selects in `namespace`; returns the objects as they were before.

    Each is deleted by itself, as in Kubernetes, though some share a commit: an object that is refused keeps none of
    those beside it.
    Raises: as `delete`, once what was not refused is gone; what would have come later is left.
    """
    page = list_page(kind, namespace=namespace, options=selected)
    portions = objects.portions(page.items, lambda item: len(item.text))
    deleted = [item for portion in portions for item in _deleted_together(kind, portion, identity, options)]
    return replace(page, items=tuple(deleted))


def _deleted_together(
    kind: Kind, items: Sequence[Stored], identity: Identity, options: DeleteOptions
) -> Iterator[Stored]:
    """Those that were there to be deleted. Raises: as `delete`, after all of them."""
    admitted, refusal = _admitted(kind, items, identity, options)
    pending = [_pending_removal(kind, item, identity, options) for item in admitted]
    objects.settle(pending, dry_run=bool(options.dry_run), portion=True)
    for item, removal in zip(admitted, pending, strict=True):
        try:
            removal.outcome()
        except NotFound:  # somebody else was quicker
            continue
        except ApiError as error:
            refusal = refusal or error
            continue
        yield item
    if refusal is not None:
        raise refusal


def _admitted(
    kind: Kind, items: Sequence[Stored], identity: Identity, options: DeleteOptions
) -> tuple[Sequence[Stored], ApiError | None]:
    """Those up to the first that the first stage refuses, and its refusal."""
    for place, item in enumerate(items):
        try:
            _admit_deletion(kind, objects.decode(kind, item.text), identity, options)
        except ApiError as error:
            return items[:place], error
    return items, None


def _pending_removal(
    kind: Kind, item: Stored, identity: Identity, options: DeleteOptions
) -> objects.PendingWrite[DeletionAnswer]:
    work = _removal(kind, item.namespace, item.name, options)
    return objects.PendingWrite(work, identity, [objects.Read(kind, item.namespace, item.name)])


# Some objects in the place of others ----------------------------------------------------------------------------------


def replace_all(
    old: Sequence[tuple[Kind, ApiObject]],
    new: Sequence[Successor],
    *,
    identity: Identity,
    dry_run: bool = False,
) -> list[Any]:
    """Delete `old`, by uid, and create `new`; returns what was made. All of it, or nothing.

    Raises: NotFound, Conflict for an old one that is another by now or does not go at once; what `verbs.create` raises.
    """

    def work(writer: objects.Writer) -> list[Any]:
        for kind, known in old:
            meta = known.metadata
            if not writer.delete(kind, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0).gone:
                raise Conflict.of(kind.resource, meta.name, "something holds it: it does not go at once")
        return [writer.create(kind, obj, uid=uid) for kind, obj, uid in made]

    both = [*old, *((one.kind, one.object) for one in new)]
    reads = [objects.Read(kind, one.metadata.namespace, one.metadata.name) for kind, one in both]
    first_kind, first, _ = new[0]
    there = destination()
    written = page_write(
        "create",
        first_kind,
        identity=identity,
        namespace=first.metadata.namespace,
        name=first.metadata.name,
        dry_run=dry_run,
        of_several=True,
    )
    with written:
        if there is not None:
            return there.replace_all(old, new, identity=identity, dry_run=dry_run)
        options = DeleteOptions(dry_run=("All",) if dry_run else ())
        for kind, known in old:
            _admit_deletion(kind, current(kind, known.metadata.namespace, known.metadata.name), identity, options)
        made = [admitted_creation(one.kind, one.object, identity=identity, dry_run=dry_run) for one in new]
        return objects.write(work, identity=identity, reads=reads, dry_run=dry_run)


def admitted_creation(kind: Kind, wanted: ApiObject, *, identity: Identity, dry_run: bool) -> tuple[Kind, Any, str]:
    """(kind, the object as it is to be stored, named, its uid). Raises: Invalid, and what checks raise."""
    write = Write(
        operation="CREATE",
        kind=kind,
        new=placed(kind, wanted, namespace=wanted.metadata.namespace),
        identity=identity,
        dry_run=dry_run,
        verb="create",
        version=hooks.asked_version(),
        options=hooks.asked_options("CreateOptions", dry_run=dry_run),
    )
    hooks.ask_gates(write)
    obj: Any = _named(_mutated(write, kind.prepare_create(hooks.completed(write))))
    uid = new_uid()
    seen = initialise(kind, obj, name=obj.metadata.name, uid=uid, now=datetime.now(UTC))
    refuse_wrong(kind, seen, kind.create_rule(hooks.asked_version())(seen))
    hooks.ask_checks(structs.replace(write, new=seen))
    return kind, obj, uid


# Edits ----------------------------------------------------------------------------------------------------------------


#: Attempts at an update that conflicts with other writers (upstream: patches retry 5 times).
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
        known = objects.cached(self.kind, self.namespace, self.name)
        return None if known is None else self.kind.upgraded(known)

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
            version=hooks.asked_version(),
            options=hooks.asked_options("UpdateOptions", dry_run=dry_run),
        )
        hooks.ask_gates(write)
        rules = "" if projection else subresource
        prepared = _prepared(kind, wanted, old, subresource=rules)
        if self.manager:
            now = timestamp(datetime.now(UTC))
            prepared = track_update(kind, prepared, old, manager=self.manager, subresource=subresource, now=now)

        def whole(changed: Any) -> Any:
            """The object as a mutation has it. What that sets nobody owns."""
            if projection:
                document = codec.to_builtins(changed)
                changed = projection.write(prepared, lambda _shown: document)
            kept = structs.replace(changed.metadata, managed_fields=prepared.metadata.managed_fields)
            return _prepared(kind, structs.replace(changed, metadata=kept), old, subresource=rules)

        shown = seen(prepared)
        changed = hooks.mutated(structs.replace(write, new=shown), lambda changed: seen(whole(changed)))
        new = prepared if changed is shown else whole(changed)
        refuse_wrong(kind, new, kind.update_rule(hooks.asked_version(), rules)(new, old))
        hooks.ask_checks(structs.replace(write, new=seen(new)))
        return new


# Several edits in one commit ------------------------------------------------------------------------------------------


def made_together(edits: Sequence[Edit]) -> list[WriteAnswer | Exception]:
    """Makes them in as few commits as possible; how each ended, in their order."""
    outcomes: dict[int, WriteAnswer | Exception] = {}
    left = list(range(len(edits)))
    for remaining in reversed(range(ATTEMPTS)):
        anew = remaining < ATTEMPTS - 1
        outcomes.update(zip(left, _attempted([edits[place] for place in left], anew=anew), strict=True))
        # As in `Edit.made`: a failed guess proves nothing, and a conflict is retried.
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


# The successor of an object -------------------------------------------------------------------------------------------


def current(kind: Kind, namespace: str, name: str) -> Any:
    """The stored object. Raises: NotFound."""
    stored = objects.get(kind, namespace, name)
    if stored is None:
        raise NotFound.of(kind.resource, name)
    return kind.upgraded(objects.decode(kind, stored.text))


def _prepared(kind: Kind, new: Any, old: Any, *, subresource: str) -> Any:
    """`new` as it is to follow `old`, carrying the resourceVersion it replaces.

    Raises: Conflict where `new` names another resourceVersion or uid.
    """
    rules: Any = kind.subresources[subresource] if subresource else kind
    return rules.prepare_update(_inheriting(kind, new, old), old)


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
