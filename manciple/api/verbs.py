"""What the verbs of the API do, for the REST views and the pages alike.

Every read is of the newest state, so it is "not older than" any revision that exists. A revision that does not exist
yet is answered with a Timeout, as upstream does when its cache does not catch up; an exact past revision is answered
where nothing of the kind has changed since, and is Expired otherwise.

Writes prepare, validate, admit and store. Everything slow happens before the transaction. An update therefore reads the
object, works out its successor, and writes it on condition that nobody else wrote meanwhile; if somebody did, it starts
over with what they left (`ATTEMPTS` times). A client that named a resourceVersion wants exactly that one replaced, and
gets the Conflict.

`dry_run` goes the whole way and rolls the transaction back. Source: apiserver/pkg/registry/generic/registry/store.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from random import SystemRandom
from typing import Any
from uuid import uuid4

from msgspec import structs

from manciple.access import authorization
from manciple.access.attributes import on_object
from manciple.access.kinds import roles
from manciple.api import first_stage, namespaces
from manciple.api.creation_traces import trace_creation
from manciple.api.requests import ListOptions, propagation_of, revision
from manciple.store import objects, tail
from manciple.store.hooks import Write
from manciple.store.metadata import initialise
from manciple.store.records import DeletionAnswer, Page, Stored
from manciple.store.writer import NAME_ATTEMPTS
from manciple.telemetry import traces
from manciple.wire import codec
from manciple.wire.apply import tracked
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    FieldError,
    Invalid,
    NotFound,
    invalid,
)
from manciple.wire.identity import Identity
from manciple.wire.machinery import DeleteOptions, Preconditions
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
        _check_reached(wanted, tail.latest_revision())
    stored = objects.get(kind, namespace, name)
    if stored is None:
        raise NotFound.of(kind.resource, name)
    return stored


def list_page(kind: Kind, *, namespace: str, options: ListOptions) -> Page:
    """Raises: BadRequest for a strange continue token; Expired, TooLargeRevision."""
    page = objects.list(
        kind,
        namespace=namespace,
        labels=None if options.labels.empty else options.labels,
        fields=None if options.fields.empty else options.fields,
        limit=options.limit,
        continue_token=options.continue_token,
    )
    wanted = int(options.resource_version or 0)
    if not wanted or options.continue_token:
        return page
    _check_reached(wanted, page.revision)
    return _at_exactly(kind, page, wanted) if options.resource_version_match == "Exact" else page


def _check_reached(wanted: int, current: int) -> None:
    if wanted > current:
        raise TooLargeRevision.of(wanted, current)


def _at_exactly(kind: Kind, page: Page, wanted: int) -> Page:
    changes = tail.read_after(wanted, resources=[kind.resource], limit=1)
    if changes and changes[0].revision <= page.revision:
        raise Expired(f"The resourceVersion for the provided list is too old: {wanted}.")
    return replace(page, revision=wanted)


# Writing --------------------------------------------------------------------------------------------------------------


#: How often an update is worked out anew because somebody else wrote in between (upstream: patches retry 5 times).
ATTEMPTS = 5
#: Kinds that a PUT creates where they are missing (upstream: AllowCreateOnUpdate).
CREATED_BY_UPDATE = frozenset(
    {"leases.coordination.k8s.io", "events", "events.events.k8s.io", *(kind.resource for kind in roles.KINDS)}
)
#: Kinds whose updates must name the resourceVersion they replace (upstream: AllowUnconditionalUpdate is false).
CONDITIONAL = frozenset(
    {
        "customresourcedefinitions.apiextensions.k8s.io",
        "leases.coordination.k8s.io",
        "resourcepoolstatusrequests.resource.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)

#: The Leases of nodes are renewed every ten seconds and valid for forty: seconds for which a renewal may wait for
#: others to share its commit with.
NODE_LEASES = ("leases.coordination.k8s.io", "kube-node-lease")
PATIENCE_OF_NODES = 0.25

_random = SystemRandom()

#: The stored object -> its successor; called again when somebody else wrote first, so it must not keep what it saw.
Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """The object as stored, and whether this write made it."""

    object: Any
    created: bool = False


def create(kind: Kind, obj: Any, *, namespace: str = "", identity: Identity, dry_run: bool = False) -> Any:
    """Store a new object in `namespace`; returns it with what the server filled in.

    Raises: BadRequest, Invalid, AlreadyExists; NotFound for a missing namespace, Forbidden for one being deleted.
    """
    write = Write(
        operation="CREATE",
        kind=kind,
        new=placed(kind, obj, namespace=namespace),
        identity=identity,
        dry_run=dry_run,
        verb="create",
        version=first_stage.version(),
        options=first_stage.options("CreateOptions", dry_run=dry_run),
    )
    first_stage.ask_gates(write)
    prepared = kind.prepare_create(first_stage.completed(write))
    for remaining in reversed(range(NAME_ATTEMPTS)):
        try:
            return _create(replace(write, new=_named(prepared)))
        except AlreadyExists as error:
            if prepared.metadata.name:
                raise
            if not remaining:
                why = "the server was not able to generate a unique name for the object"
                raise AlreadyExists(f"{error.message}, {why}", details=error.details) from None
    raise AssertionError("the last attempt returns or raises")


def _named(obj: Any) -> Any:
    """With a name made from generateName, where it has none: checks see it as it will be."""
    meta = obj.metadata
    if meta.name or not meta.generate_name:
        return obj
    return structs.replace(obj, metadata=structs.replace(meta, name=generate_name(meta.generate_name, _random)))


def _create(write: Write) -> Any:
    """Raises: Invalid, AlreadyExists, and what checks and rules raise."""
    kind, obj, uid = write.kind, write.new, str(uuid4())
    refuse_wrong(kind, obj, kind.create_rule(first_stage.version())(obj))
    seen = initialise(kind, obj, name=obj.metadata.name, uid=uid, now=datetime.now(UTC))
    first_stage.ask_checks(replace(write, new=seen))
    made = objects.write(
        lambda writer: writer.create(kind, obj, uid=uid),
        identity=write.identity,
        reads=_reads_of_creation(kind, obj),
        dry_run=write.dry_run,
    )
    if traces.on() and not write.dry_run:
        trace_creation(kind, made, write.identity)
    return made


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
) -> WriteAnswer:
    """Replace an object (or the part of it that `subresource` owns). `manager` is who owns changed fields then.

    complete: (new, old) -> new with what the client could not say in its version.

    Raises: BadRequest, Invalid, NotFound, Conflict.
    """
    wanted = placed(kind, obj, namespace=namespace, name=name)
    creates = kind.resource in CREATED_BY_UPDATE and not subresource
    if creates and objects.get(kind, namespace, name) is None:
        return _create_by_update(kind, wanted, namespace=namespace, identity=identity, dry_run=dry_run)
    if (kind.is_open or kind.resource in CONDITIONAL) and not wanted.metadata.resource_version:
        wrong = invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise Invalid.of(kind=kind.plural, group=kind.group, name=name, errors=[wrong])  # upstream names the plural
    return modify(
        kind,
        lambda old: complete(wanted, old),
        namespace=namespace,
        name=name,
        identity=identity,
        subresource=subresource,
        manager=manager,
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
) -> WriteAnswer:
    """Replace an object by what `change` makes of it. This is how patches and in-process edits are written.

    `manager` (the identity where none is named) owns the changed fields, unless `change` sets managedFields itself
    (`sets_managed_fields`). verb: what checks take the request for, "patch" or "update".

    Raises: BadRequest, Invalid, NotFound, Conflict.
    """
    edit = _Edit(
        kind,
        change,
        namespace,
        name,
        identity=identity,
        subresource=subresource,
        manager="" if sets_managed_fields else manager or identity.name,
        dry_run=dry_run,
        verb=verb,
    )
    # Most often this process wrote the object last. What goes wrong on that guess says nothing: read, and try again.
    guess = objects.cached(kind, namespace, name)
    for remaining in reversed(range(ATTEMPTS)):
        try:
            return edit.attempt(guess or current(kind, namespace, name), guessed=guess is not None)
        except ApiError as error:
            if not remaining or not (guess or isinstance(error, Conflict)):
                raise
        guess = None
    raise AssertionError("the last attempt returns or raises")


@dataclass(frozen=True, slots=True)
class _Edit:
    """One change of one object, which may be attempted several times."""

    kind: Kind
    change: Change
    namespace: str
    name: str
    _: KW_ONLY
    identity: Identity
    subresource: str
    manager: str  # who owns the changed fields; "" where the change itself says so
    dry_run: bool
    verb: str

    def attempt(self, old: Any, *, guessed: bool) -> WriteAnswer:
        """Raises: Conflict where `old` is not what is stored any more, or is a guess that nothing has tested."""
        kind, identity, subresource, dry_run = self.kind, self.identity, self.subresource, self.dry_run
        write = Write(
            operation="UPDATE",
            kind=kind,
            subresource=subresource,
            new=self.change(old),
            old=old,
            identity=identity,
            dry_run=dry_run,
            verb=self.verb,
            version=first_stage.version(),
            options=first_stage.options("UpdateOptions", dry_run=dry_run),
        )
        first_stage.ask_gates(write)
        new = successor(kind, write.new, old, subresource=subresource)
        if self.manager:
            new = tracked(
                kind, new, old, manager=self.manager, subresource=subresource, now=timestamp(datetime.now(UTC))
            )
        first_stage.ask_checks(replace(write, new=new))
        if new == old:
            if guessed:
                raise Conflict.of(kind.resource, self.name)
            return WriteAnswer(old)
        return WriteAnswer(_update(kind, new, old, identity=identity, subresource=subresource, dry_run=dry_run))


def delete(
    kind: Kind, *, namespace: str = "", name: str, identity: Identity, options: DeleteOptions | None = None
) -> DeletionAnswer:
    """Delete an object, or mark it for deletion where finalizers or a grace period hold it.

    Raises: NotFound, Conflict for preconditions that do not hold, Forbidden.
    """
    options = options or DeleteOptions()
    write = Write(
        operation="DELETE",
        kind=kind,
        old=current(kind, namespace, name),
        identity=identity,
        dry_run=bool(options.dry_run),
        verb="delete",
        version=first_stage.version(),
        options=codec.to_builtins(_identified(options)),
    )
    first_stage.admit(write)
    return remove(kind, namespace=namespace, name=name, identity=identity, options=options)


def remove(kind: Kind, *, namespace: str, name: str, identity: Identity, options: DeleteOptions) -> DeletionAnswer:
    """`delete`, where the first stage has admitted something that comes to the same, such as an eviction.

    Raises: NotFound, Conflict for preconditions that do not hold, Forbidden.
    """
    dry_run = bool(options.dry_run)
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
            propagation=propagation_of(options),
        )

    reads = [objects.Read(kind, namespace, name)]
    deletion = objects.write(work, identity=identity, reads=reads, dry_run=dry_run)
    if ends_namespace and not dry_run:
        namespaces.release_if_empty(name)
    return deletion


def _identified(options: DeleteOptions) -> DeleteOptions:
    return structs.replace(options, kind="DeleteOptions", api_version="meta.k8s.io/v1")


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


def placed(kind: Kind, obj: Any, *, namespace: str, name: str = "") -> Any:
    """`obj` in the namespace, and under the name, that the path gives. Raises: BadRequest where it names others."""
    meta = obj.metadata
    if kind.namespaced and meta.namespace and meta.namespace != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if name and not meta.name:
        raise BadRequest(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if name and meta.name != name:
        raise BadRequest(f"the name of the object ({meta.name}) does not match the name on the URL ({name})")
    if meta.namespace == namespace and obj.kind == kind.kind and obj.api_version == kind.api_version:
        return obj
    here = structs.replace(meta, namespace=namespace)
    return structs.replace(obj, api_version=kind.api_version, kind=kind.kind, metadata=here)


def refuse_wrong(kind: Kind, obj: ApiObject, errors: Sequence[FieldError]) -> None:
    """Raises: Invalid with every one of `errors`."""
    if errors:
        name = obj.metadata.name or obj.metadata.generate_name
        raise Invalid.of(kind=kind.kind, group=kind.group, name=name, errors=errors)


def _reads_of_creation(kind: Kind, obj: ApiObject) -> list[objects.Read]:
    """What stands in the way of a new object, and its namespace, which the rules ask for."""
    meta, namespaces = obj.metadata, registry.find("", "v1", "namespaces")
    reads = [objects.Read(kind, meta.namespace, meta.name)] if meta.name else []
    if kind.namespaced and namespaces is not None:
        reads.append(objects.Read(namespaces, "", meta.namespace))
    return reads


def _update(kind: Kind, new: Any, old: Any, *, identity: Identity, subresource: str, dry_run: bool) -> Any:
    return objects.write(
        lambda writer: writer.update(kind, new, subresource=subresource),
        identity=identity,
        reads=[objects.Read(kind, old.metadata.namespace, old.metadata.name, objects.known(kind, old))],
        patience=PATIENCE_OF_NODES if (kind.resource, old.metadata.namespace) == NODE_LEASES else 0.0,
        dry_run=dry_run,
    )


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


def _create_by_update(kind: Kind, wanted: Any, *, namespace: str, identity: Identity, dry_run: bool) -> WriteAnswer:
    """A PUT of a missing object. One that names a uid meant an object that is gone. Raises: Forbidden."""
    meta = wanted.metadata
    authorization.demand(identity, on_object("create", kind, namespace=namespace, name=meta.name))
    if meta.uid:
        why = f"Precondition failed: UID in precondition: {meta.uid}, UID in object meta: "
        raise Conflict.of(kind.resource, meta.name, why)
    fresh = structs.replace(wanted, metadata=structs.replace(meta, resource_version=""))
    made = create(kind, fresh, namespace=namespace, identity=identity, dry_run=dry_run)
    return WriteAnswer(made, created=True)


# Collections ----------------------------------------------------------------------------------------------------------


def delete_all(
    kind: Kind, *, namespace: str, selected: ListOptions, identity: Identity, options: DeleteOptions
) -> Page:
    """Delete what `selected` selects in `namespace`; returns the objects as they were before."""
    page = list_page(kind, namespace=namespace, options=selected)
    deleted = tuple(item for item in page.items if _deleted(kind, item, identity=identity, options=options))
    return replace(page, items=deleted)


def _deleted(kind: Kind, item: Stored, *, identity: Identity, options: DeleteOptions) -> bool:
    try:
        delete(kind, namespace=item.namespace, name=item.name, identity=identity, options=options)
    except NotFound:
        return False
    return True
