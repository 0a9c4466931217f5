"""The cluster as the destination of what pages write in its mirror (`manciple.api.destination`), in the person's name.

One write, in order:

 1. where it goes: the resource in the version in which it is copied, and only what `mirrored.ACTS` has
 2. of an edit: the object is read there, and must have the content of the copy, which is what the person saw; else the
    copy is brought up to date, and the edit is a Conflict
 3. the request: a JSON patch that tests the version (`edits`), a POST, or a DELETE of this uid, sent once
 4. the answer: a refusal is raised as received, warnings are passed on; both sides are noted for the audit trail
 5. the copy: what was answered is stored at once (`keep`), unless something newer is

Nothing of ours is asked: no admission, no defaults, no quota. A dry run goes the same way (`dryRun=All`) and ends at 4.

Where no answer comes, nobody knows whether the write was done (`GatewayTimeout`). It is not sent again: the object is
looked at, and the message says how it is now. For some seconds afterwards nothing is sent at all, so that an action
on a hundred objects does not wait a hundred times.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec
from django.conf import settings
from msgspec import structs

from manciple.access import authorization, mirrored
from manciple.access.authorization import on_object
from manciple.api.destination import Document, Successor
from manciple.api.verbs import WriteAnswer
from manciple.mirror import edits, received, standing
from manciple.mirror.client import WRITE_TIMEOUT, Answer, Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.models import RemoteVersion
from manciple.mirror.naming import Naming
from manciple.mirror.received import Received, Unreadable
from manciple.mirror.sources import BY_RESOURCE, Reach, Source
from manciple.mirror.stored_copy import Change
from manciple.store import objects, records
from manciple.store.records import DeletionAnswer, Stored
from manciple.wire import codec, errors
from manciple.wire.base import ApiObject
from manciple.wire.errors import (
    ApiError,
    BadRequest,
    Conflict,
    GatewayTimeout,
    NotFound,
    PartlyDone,
    ServiceUnavailable,
    Unauthorized,
)
from manciple.wire.identity import Identity
from manciple.wire.machinery import DeleteOptions, Preconditions
from manciple.wire.registry import Kind, Served
from manciple.wire.resources import PODS
from manciple.wire.resources import kind as kind_of

#: Who owns the fields that are written, as managedFields have it.
MANAGER: Final = "manciple"
JSON, JSON_PATCH = "application/json", "application/json-patch+json"
#: Seconds without a request after one was not answered; that a look at an object may take.
PAUSE, LOOK = 5.0, 5.0
#: Characters of what the cluster says, and of what was sent, that are passed on.
MOST_SAID, MOST_NOTED = 2000, 400
#: The audit trail's annotations: a request to the cluster, and its answer.
NOTED: Final = "mirror.manciple.dev/request"

#: What a server sets, so that a new object cannot bring it.
_OF_SERVER: Final = frozenset(
    {
        *("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    }
)
#: Of what is created again: without time to end.
_AT_ONCE: Final = DeleteOptions(grace_period_seconds=0)
#: What an edit is not about, and what of the metadata it is.
_AROUND: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_OF_META: Final = ("labels", "annotations", "finalizers", "ownerReferences")
_KNOWN: Final = (
    *(errors.NotFound, errors.AlreadyExists, errors.Conflict, errors.Invalid, errors.BadRequest),
    *(errors.Forbidden, errors.Unauthorized, errors.MethodNotAllowed, errors.Expired, errors.TooLarge),
    *(errors.TooManyRequests, errors.ServiceUnavailable),
)
_BY_REASON: Final[Mapping[str, type[ApiError]]] = {one.reason: one for one in _KNOWN}
#: Of an answer that gives no reason.
_BY_CODE: Final[Mapping[int, type[ApiError]]] = {one.code: one for one in _KNOWN}
_WARNING: Final = re.compile(r'299 [^ ]+ "((?:[^"\\]|\\.)*)"')

#: Stores what the cluster has answered; whether it is stored now, or something newer is.
Keep = Callable[[Change], bool]


@dataclass(frozen=True, slots=True)
class _Place:
    """An object of the cluster, in the version in which it is copied."""

    kind: Kind
    source: Source
    version: str
    namespace: str
    name: str

    @property
    def collection(self) -> str:
        return self.source.path(self.version, namespace=self.namespace)

    @property
    def path(self) -> str:
        return self.source.path(self.version, namespace=self.namespace, name=self.name)

    @property
    def title(self) -> str:
        return f"{self.kind.kind} {self.name}"

    def document(self, stored: Document) -> Document:
        """A stored document as it is in this version. Unknown fields stay."""
        if self.version != self.kind.version and self.version not in self.kind.served_versions:
            return {**stored, "apiVersion": f"{self.kind.group}/{self.version}"}  # of the same shape
        served = Served(self.kind, self.version, self.kind.served_versions.get(self.version))
        return served.document(deepcopy(stored))


@dataclass(frozen=True, slots=True)
class _Fresh:
    """An object as the cluster has just returned it. text: as received; document: decoded; known: in our types."""

    text: bytes
    document: Document
    known: Received

    @property
    def uid(self) -> str:
        return self.known.object.metadata.uid

    @property
    def version(self) -> str:
        return str(self.document["metadata"]["resourceVersion"])

    @property
    def is_ending(self) -> bool:
        return self.known.object.metadata.deletion_timestamp is not None


class Acting:
    """named: the headers by which the cluster knows who acts."""

    def __init__(
        self, remote: Remote, *, named: Naming, keep: Keep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._remote, self._named, self._keep_copy, self._clock = remote, named, keep, clock
        self._silent_until = -PAUSE

    # What pages do ----------------------------------------------------------------------------------------------------

    def create(
        self, kind: Kind, obj: Any, *, identity: Identity, dry_run: bool = False, document: Document | None = None
    ) -> Any:
        """Raises: ApiError."""
        place = self._place(kind, "create", obj.metadata.namespace, obj.metadata.name)
        body = place.document(document if document is not None else codec.to_builtins(obj))
        return self._create(place, _anew(body), identity, dry_run=dry_run)

    def modify(
        self,
        kind: Kind,
        change: Callable[[Any], Any],
        *,
        namespace: str,
        name: str,
        identity: Identity,
        dry_run: bool = False,
        subresource: str = "",
        revision: str = "",
        documents: tuple[Document, Document] | None = None,
    ) -> WriteAnswer:
        """Raises: ApiError; Conflict where the object is not as it is here any more."""
        place = self._place(kind, "patch", namespace, name, subresource=subresource)
        stored, fresh = self._as_copied(place, identity, revision=revision)
        old = fresh.known.object
        new = _edited(old, change(old))
        before, after = documents or (codec.to_builtins(old), codec.to_builtins(new))
        try:
            wanted = edits.carried(fresh.document, place.document(before), place.document(after))
        except edits.Ambiguous as ambiguous:
            raise BadRequest(
                f"{place.title} has fields at {ambiguous.path} that this version of Manciple does not know, and it "
                f"cannot be told where they belong afterwards: change it with kubectl --context {_context()}"
            ) from None
        patch = edits.patch_of(fresh.document, wanted)
        if not patch:
            return WriteAnswer(objects.decode(kind, stored.text))
        noted = ", ".join(f"{one['op']} {one['path']}" for one in patch[1:])

        def found(now: _Fresh | None) -> str:
            if now is None:
                return "it does not exist any more"
            if now.version == fresh.version:
                return "so far it has not been changed"
            is_done = edits.same(_content(now.document), _content(wanted))
            return "it has been changed as you wanted" if is_done else "it has been changed since, so look at it"

        body = msgspec.json.encode(patch)
        answer = self._write(
            place, "PATCH", place.path, body, identity, dry_run=dry_run, noted=noted, found=found, type_=JSON_PATCH
        )
        return WriteAnswer(self._taken(place, answer, dry_run=dry_run))

    def delete(
        self, kind: Kind, *, namespace: str, name: str, identity: Identity, options: DeleteOptions
    ) -> DeletionAnswer:
        """Raises: ApiError; NotFound where it is gone."""
        place = self._place(kind, "delete", namespace, name)
        stored = _stored(place)
        return self._delete(place, stored, options, identity)

    def evict(self, pod: ApiObject, eviction: Document, *, identity: Identity) -> None:
        """Raises: ApiError; TooManyRequests where a disruption budget keeps the pod."""
        place, uid = self._place(kind_of(PODS), "delete", *pod.key), pod.metadata.uid
        path, body = f"{place.path}/eviction", msgspec.json.encode(eviction)
        self._write(place, "POST", path, body, identity, dry_run=False, found=_said_of_deletion(uid))
        self._look(place, identity, uid=uid)

    def replace_all(
        self,
        old: Sequence[tuple[Kind, ApiObject]],
        new: Sequence[Successor],
        *,
        identity: Identity,
        dry_run: bool = False,
    ) -> list[Any]:
        """A cluster has no transactions: everything is tried before anything is done, and what was done is taken back
        where the rest is refused.

        1. read what goes; it must be as it is here, and nothing may hold it
        2. dry runs: each creation, under another name where its name is not free yet, and each deletion
        3. create what has a name of its own
        4. delete what goes
        5. create the rest

        Raises: ApiError; PartlyDone where something was changed.
        """
        going = []
        for kind, known in old:
            place = self._place(kind, "delete", known.metadata.namespace, known.metadata.name)
            stored, fresh = self._as_copied(place, identity)
            if stored.uid != known.metadata.uid:
                raise Conflict.of(kind.resource, place.name, "another one has its name by now")
            if fresh.known.object.metadata.finalizers:
                raise Conflict.of(kind.resource, place.name, "something holds it: it does not go at once")
            going.append((place, stored, fresh))
        names = {(place.kind.resource, place.namespace, place.name) for place, *_ in going}
        coming = [self._successor(one, identity) for one in new]
        now = [one for one in coming if (one[0].kind.resource, one[0].namespace, one[0].name) not in names]
        later = [one for one in coming if one not in now]
        for place, document in now:
            self._try(place, document, identity, has_room=True)
        for place, document in later:
            self._try(place, _unnamed(document), identity, has_room=False)
        for place, stored, _ in going:
            self._delete(place, stored, structs.replace(_AT_ONCE, dry_run=("All",)), identity)
        if dry_run:
            return []
        with _Replacing(self, identity) as done:
            done.create(now)
            for place, stored, fresh in going:
                done.delete(place, stored, fresh)
            done.create(later)
        return [made for _, made in done.created]

    def _try(self, place: _Place, document: Document, identity: Identity, *, has_room: bool) -> None:
        """has_room: nothing goes that a quota counts in its place."""
        try:
            self._create(place, document, identity, dry_run=True)
        except errors.Forbidden as refusal:
            if has_room or "exceeded quota" not in refusal.message:
                raise

    def _successor(self, one: Successor, identity: Identity) -> tuple[_Place, Document]:
        """What is created, with what only the cluster has of the object that it is a copy of."""
        meta = one.object.metadata
        place = self._place(one.kind, "create", meta.namespace, meta.name)
        wanted = _anew(place.document(codec.to_builtins(one.object)))
        if one.of is None:
            return place, wanted
        model = self._place(one.kind, "create", one.of.metadata.namespace, one.of.metadata.name)
        _, fresh = self._as_copied(model, identity)
        before = _anew(place.document(codec.to_builtins(fresh.known.object)))
        try:
            return place, edits.carried(_anew(fresh.document), before, wanted)
        except edits.Ambiguous as ambiguous:
            raise BadRequest(
                f"{model.title} has fields at {ambiguous.path} that this version of Manciple does not know: replace it "
                f"with kubectl --context {_context()}"
            ) from None

    # The steps of a write ---------------------------------------------------------------------------------------------

    def _place(self, kind: Kind, verb: str, namespace: str, name: str, *, subresource: str = "") -> _Place:
        """Raises: Forbidden for what no mirror does, BadRequest for what the cluster does not have."""
        wanted = on_object(verb, kind, namespace=namespace, name=name, subresource=subresource)
        source = BY_RESOURCE.get(kind.resource)
        if source is None or verb not in mirrored.ACTS.get(kind.resource, ()) or subresource:
            why = f"change it with kubectl --context {_context()}"
            raise authorization.refusal(Identity(_context()), wanted, why)
        known = standing.kinds().get(kind.resource)
        if known is not None and known.reach is Reach.ABSENT:
            raise BadRequest(f"{_context()} does not have {kind.resource}")
        version = known.version if known is not None and known.version else source.versions[0]
        return _Place(kind, source, version, namespace, name)

    def _as_copied(self, place: _Place, identity: Identity, *, revision: str = "") -> tuple[Stored, _Fresh]:
        """The copy, and the object in the cluster, which has the same content. Raises: NotFound, Conflict, ApiError."""
        stored = _stored(place)
        fresh = self._fresh(place, self._read(place, identity))
        changed = stored.uid != fresh.uid or not edits.same(
            _content(msgspec.json.decode(stored.text)), _content(received.plain(fresh.known.document))
        )
        if changed:
            self._keep(place, fresh)
        if changed or (revision and revision != str(stored.revision)):
            raise Conflict.of(
                place.kind.resource, place.name, "it has changed since this page was made; look at it again"
            )
        return stored, fresh

    def _read(self, place: _Place, identity: Identity, *, is_look: bool = False) -> Answer:
        """is_look: after a write that was not answered. Raises: ApiError, NotFound among them."""
        answer = self._sent("GET", place.path, b"", identity, timeout=LOOK, even_now=is_look)
        if answer.code >= errors.BadRequest.code:
            refusal = refusal_of(answer, f"GET {place.path}")
            if isinstance(refusal, NotFound) and (stored := _found(place)) is not None:
                self._keep_gone(place, stored.uid)
            raise refusal
        return answer

    def _create(
        self, place: _Place, document: Document, identity: Identity, *, dry_run: bool, even_now: bool = False
    ) -> Any:
        def found(now: _Fresh | None) -> str:
            return "there is one of this name now" if now else "so far there is none"

        body = msgspec.json.encode(document)
        answer = self._write(
            place, "POST", place.collection, body, identity, dry_run=dry_run, found=found, even_now=even_now
        )
        return self._taken(place, answer, dry_run=dry_run)

    def _delete(
        self,
        place: _Place,
        stored: Stored,
        options: DeleteOptions,
        identity: Identity,
        *,
        version: str = "",
        even_now: bool = False,
    ) -> DeletionAnswer:
        """version: that the cluster must still have."""
        wanted, dry_run = options.preconditions or Preconditions(), bool(options.dry_run)
        conditions = {"uid": wanted.uid or stored.uid}
        if wanted.resource_version:
            version = RemoteVersion.objects.filter(uid=stored.uid).values_list("version", flat=True).first() or ""
            if wanted.resource_version != str(stored.revision) or not version:
                raise Conflict.of(place.kind.resource, place.name)
        if version:
            conditions["resourceVersion"] = version
        document: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        if options.grace_period_seconds is not None:
            document["gracePeriodSeconds"] = options.grace_period_seconds
        if options.propagation_policy:
            document["propagationPolicy"] = options.propagation_policy
        if dry_run:
            document["dryRun"] = ["All"]
        before, body = objects.decode(place.kind, stored.text), msgspec.json.encode(document)
        found = _said_of_deletion(stored.uid)
        try:
            self._write(place, "DELETE", place.path, body, identity, dry_run=dry_run, found=found, even_now=even_now)
        except NotFound:
            self._keep_gone(place, stored.uid)
            raise
        if dry_run:
            return DeletionAnswer(before, gone=False)
        now = self._look(place, identity, uid=stored.uid)
        is_here = now is not None and now.uid == stored.uid
        return DeletionAnswer(now.known.object if now is not None and is_here else before, gone=not is_here)

    def _look(self, place: _Place, identity: Identity, *, uid: str) -> _Fresh | None:
        """The object as it is now, also stored in the copy; None where it is gone or cannot be read, and the watch will
        say.
        """
        try:
            fresh = self._fresh(place, self._read(place, identity))
        except NotFound:
            self._keep_gone(place, uid)
            return None
        except ApiError:
            return None
        self._keep(place, fresh)
        return fresh

    def _write(
        self,
        place: _Place,
        method: str,
        path: str,
        body: bytes,
        identity: Identity,
        *,
        dry_run: bool,
        found: Callable[[_Fresh | None], str],
        noted: str = "",
        type_: str = JSON,
        even_now: bool = False,
    ) -> Answer:
        """found: what the object, as it is afterwards, says of a write that was not answered. even_now: as for `_sent`.

        Raises: ApiError.
        """
        params = {"dryRun": "All"} if dry_run else {}
        if method != "DELETE" and not path.endswith("/eviction"):
            params |= {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        sent = f"{method} {path}{' dryRun=All' if dry_run else ''}{f' ({noted[:MOST_NOTED]})' if noted else ''}"
        try:
            answer = self._sent(method, path, body, identity, params=params, type_=type_, even_now=even_now)
        except _NoAnswer as unanswered:
            _note(sent, "no answer")
            if dry_run:
                raise ServiceUnavailable(f"{_context()} did not answer: {unanswered.message}") from unanswered
            raise self._unknown(place, identity, unanswered.message, found) from unanswered
        except ApiError as refusal:
            _note(sent, f"not sent: {refusal.message}")
            raise
        for header in answer.warnings:
            for text in _WARNING.findall(header):
                records.warn(records.clean(re.sub(r"\\(.)", r"\1", text), MOST_SAID))
        code = f"{answer.code}{f', Audit-Id {records.clean(answer.audit_id, 64)}' if answer.audit_id else ''}"
        _note(sent, code)
        if answer.code < errors.BadRequest.code:
            return answer
        said = refusal_of(answer, f"{method} {path}", whose=place)
        if isinstance(said, GatewayTimeout) and not dry_run:
            raise self._unknown(place, identity, said.message, found)
        raise said

    def _unknown(
        self, place: _Place, identity: Identity, why: str, found: Callable[[_Fresh | None], str]
    ) -> Unanswered:
        """What is said of a write that was sent and not answered."""
        said = f"It is not known whether {_context()} did it: {why}."
        try:
            now = self._fresh(place, self._read(place, identity, is_look=True)) if place.name else None
        except NotFound:
            now = None
        except ApiError:
            return Unanswered(f"{said} {place.title} cannot be looked at either; look at it before you try again.")
        if not place.name:
            return Unanswered(f"{said} Look whether it was created before you try again.")
        if now is not None:
            self._keep(place, now)
        unanswered = Unanswered(f"{said} {place.title} was looked at: {found(now)}.")
        unanswered.is_looked_at, unanswered.now = True, now
        return unanswered

    def _sent(
        self,
        method: str,
        path: str,
        body: bytes,
        identity: Identity,
        *,
        params: Mapping[str, str] | None = None,
        type_: str = JSON,
        timeout: float = WRITE_TIMEOUT,
        even_now: bool = False,
    ) -> Answer:
        """even_now: also within the pause after silence, as what was begun must be ended.

        Raises: _NoAnswer where it may have arrived; ServiceUnavailable, Unauthorized, Forbidden where not.
        """
        headers = self._named(identity)
        if self._clock() < self._silent_until and not even_now:
            raise ServiceUnavailable(f"{_context()} did not answer a moment ago, so nothing was sent")
        try:
            return self._remote.send(
                method, path, params=params, body=body, content_type=type_, headers=headers, timeout=timeout
            )
        except RemoteFailure as failure:
            message = records.clean(str(failure), MOST_SAID)
            if failure.code:
                raise Unauthorized(message) from failure
            self._silent_until = self._clock() + PAUSE
            if failure.unknown and method != "GET":
                raise _NoAnswer(message) from failure
            raise ServiceUnavailable(f"nothing was sent: {message}") from failure

    # The copy ---------------------------------------------------------------------------------------------------------

    def _fresh(self, place: _Place, answer: Answer) -> _Fresh:
        """Raises: BadRequest for an object that our types cannot read."""
        try:
            known = received.read(place.kind, place.version, answer.content)
            return _Fresh(answer.content, msgspec.json.decode(answer.content), known)
        except Unreadable as unreadable:
            raise BadRequest(f"{place.title} cannot be read: {unreadable}") from unreadable

    def _taken(self, place: _Place, answer: Answer, *, dry_run: bool) -> Any:
        """The object that a write was answered with, as the copy has it. Raises: GatewayTimeout where it has not."""
        try:
            fresh = self._fresh(place, answer)
        except BadRequest as unreadable:
            raise GatewayTimeout(f"{_context()} did it, but {unreadable.message}") from unreadable
        if dry_run:
            obj = fresh.known.object
            return structs.replace(obj, metadata=structs.replace(obj.metadata, resource_version="0"))
        is_kept = self._keep(place, fresh)
        meta = fresh.known.object.metadata
        stored = objects.get(place.kind, meta.namespace, meta.name)
        if not is_kept or stored is None or stored.uid != fresh.uid:
            raise GatewayTimeout(f"{_context()} did it, but the copy of {place.title} here is late: look again soon.")
        return objects.decode(place.kind, stored.text)

    def _keep(self, place: _Place, fresh: _Fresh) -> bool:
        meta = fresh.known.object.metadata
        return self._keep_copy(
            Change(place.source, place.version, meta.uid, meta.namespace, meta.name, fresh.version, fresh.text)
        )

    def _keep_gone(self, place: _Place, uid: str) -> None:
        change = Change(place.source, place.version, uid, place.namespace, place.name, "", None, gone=True)
        self._keep_copy(change)


class _NoAnswer(ApiError):
    """To a request that was sent."""


class Unanswered(GatewayTimeout):
    """A write that may have been done. is_looked_at: `now` is the object afterwards, None where there is none."""

    is_looked_at = False
    now: _Fresh | None = None


class _Replacing:
    """What of a replacement was done; a refusal takes it back. Whatever fails of that is said as well."""

    def __init__(self, acting: Acting, identity: Identity) -> None:
        self._acting, self._identity = acting, identity
        self.created: list[tuple[_Place, Any]] = []
        self.deleted: list[tuple[_Place, Document]] = []

    def create(self, wanted: Sequence[tuple[_Place, Document]]) -> None:
        for place, document in wanted:
            try:
                made = self._acting._create(place, document, self._identity, dry_run=False, even_now=True)
            except Unanswered as unanswered:
                if unanswered.now is None:
                    raise
                made = unanswered.now.known.object  # the name was free
            self.created.append((place, made))

    def delete(self, place: _Place, stored: Stored, fresh: _Fresh) -> None:
        try:
            gone = self._acting._delete(
                place, stored, _AT_ONCE, self._identity, version=fresh.version, even_now=True
            ).gone
        except Unanswered as unanswered:
            if not unanswered.is_looked_at or (unanswered.now is not None and unanswered.now.uid == stored.uid):
                raise
            gone = True
        self.deleted.append((place, _anew(fresh.document)))
        if not gone:
            raise PartlyDone(f"{place.title} is being deleted, and has not gone yet")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, ApiError) and (self.created or self.deleted):
            raise self._taken_back(error) from error

    def _taken_back(self, refusal: ApiError) -> PartlyDone:
        said = [refusal.message.rstrip(".")]
        for place, made in reversed(self.created):
            options = DeleteOptions(preconditions=Preconditions(uid=made.metadata.uid))
            try:
                self._acting._delete(place, _stored(place), options, self._identity, even_now=True)
            except NotFound:
                continue
            except ApiError as failure:
                said.append(f"{place.title} was created, and is still there ({failure.message})")
        for place, document in reversed(self.deleted):
            try:
                self._acting._create(place, document, self._identity, dry_run=False, even_now=True)
            except ApiError as failure:
                said.append(f"{place.title} was deleted, and could not be created again ({failure.message})")
            else:
                said.append(f"{place.title} was deleted for this, and has been created again as it was")
        return PartlyDone(f"{'; '.join(said)}.", details=refusal.details)


# Documents ------------------------------------------------------------------------------------------------------------


def _context() -> str:
    return str(settings.MIRROR_OF)


def _found(place: _Place) -> Stored | None:
    return objects.get(place.kind, place.namespace, place.name)


def _stored(place: _Place) -> Stored:
    """Raises: NotFound."""
    stored = _found(place)
    if stored is None:
        raise NotFound.of(place.kind.resource, place.name)
    return stored


def _content(document: Document) -> Document:
    """What people write of an object, and an edit is about."""
    meta = document["metadata"]
    content = {name: value for name, value in document.items() if name not in _AROUND}
    return content | {"metadata": {name: meta[name] for name in _OF_META if meta.get(name)}}


def _edited(old: Any, new: Any) -> Any:
    """`new` without what an edit of an object cannot change."""
    meta, kept = new.metadata, old.metadata
    content = {name: getattr(meta, name) for name in ("labels", "annotations", "finalizers", "owner_references")}
    new = structs.replace(new, api_version=old.api_version, kind=old.kind, metadata=structs.replace(kept, **content))
    return structs.replace(new, status=old.status) if hasattr(old, "status") else new


def _anew(document: Document) -> Document:
    """An object as somebody would create it."""
    meta = {name: value for name, value in document["metadata"].items() if name not in _OF_SERVER}
    made = {name: value for name, value in document.items() if name != "status"}
    return made | {"metadata": meta}


def _unnamed(document: Document) -> Document:
    """The same under a name that is free."""
    meta = {name: value for name, value in document["metadata"].items() if name != "name"}
    return document | {"metadata": meta | {"generateName": f"{document['metadata']['name'][:50]}-"}}


def _said_of_deletion(uid: str) -> Callable[[_Fresh | None], str]:
    def found(now: _Fresh | None) -> str:
        if now is None or now.uid != uid:
            return "it is gone"
        return "it is being deleted" if now.is_ending else "so far it is still there"

    return found


# Answers --------------------------------------------------------------------------------------------------------------


def refusal_of(answer: Answer, request: str, *, whose: _Place | None = None) -> ApiError:
    """What the cluster says against a request. A proxy's failure, or one that ran out of time, may have had an effect.

    whose: object, if a test of its version can have failed.
    """
    try:
        status: Any = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = f"{_context()} answered {answer.code} to {request}"
        return GatewayTimeout(text) if answer.code >= ApiError.code else _refused(ApiError, text, answer.code, "", None)
    message = records.clean(str(status.get("message") or f"it answered {answer.code}"), MOST_SAID)
    reason, details = str(status.get("reason") or ""), status.get("details")
    if answer.code == GatewayTimeout.code:
        return GatewayTimeout(message)
    is_test = answer.code == errors.Invalid.code and "/metadata/resourceVersion" in message
    if whose is not None and is_test:
        return Conflict.of(whose.kind.resource, whose.name)
    type_ = _BY_REASON.get(reason, ApiError) if reason else _BY_CODE.get(answer.code, ApiError)
    return _refused(type_, message, answer.code, reason, details)


def _refused(type_: type[ApiError], message: str, code: int, reason: str, details: object) -> ApiError:
    refusal = type_(message, details=_readable(details))
    refusal.code = code
    if reason:
        refusal.reason = reason
    return refusal


def _readable(details: object) -> dict[str, Any] | None:
    """Of a Status, as pages read it: each cause has text for what it has."""
    if not isinstance(details, dict):
        return None
    causes = [
        {name: records.clean(str(cause[name]), MOST_SAID) for name in ("reason", "message", "field") if name in cause}
        for cause in details.get("causes") or ()
        if isinstance(cause, dict)
    ]
    return {**details, "causes": causes} if causes else {k: v for k, v in details.items() if k != "causes"}


def _note(sent: str, answered: str) -> None:
    """For the audit trail: a request to the cluster and what became of it. Values and credentials are not in it."""
    request = records.origin()
    number = sum(key.startswith(NOTED) for key in request.annotations) + 1 if request is not None else 1
    records.annotate(f"{NOTED}-{number}", f"{sent}: {answered}")
