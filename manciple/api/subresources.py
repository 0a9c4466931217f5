"""Subresources that are no part of the object: worked out when somebody asks, streamed, posted to, or a session.

Those above the API register theirs from `AppConfig.ready()`, as `explain` and `log` of pods. They are listed in
discovery and in the OpenAPI documents, and asked for like any other: `kubectl get --raw .../pods/NAME/explain`. A
streamed one sends bytes as they come, and no thread waits; it ends by itself, with its client, or when the server
stops. Pods are handled as documents here: their types belong to a floor above.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from msgspec import structs

from manciple.api import requests
from manciple.api.answers import status_of, success
from manciple.api.door import Admission
from manciple.api.flow_control import flow_of
from manciple.api.requests import ResourcePath, WriteOptions
from manciple.api.sessions import OPEN, Session
from manciple.api.streams import (
    Hub,
    Receive,
    Scope,
    Send,
    admitted,
    query_of,
    refuse,
    refuse_when_stopping,
    refused,
)
from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.wire import codec
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import BadRequest, Conflict, Invalid, NotFound, not_supported, required
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.machinery import Binding
from manciple.wire.registry import Kind, Served
from manciple.wire.validation import METADATA, validate_annotations, validate_labels

logger = logging.getLogger(__name__)

BodyT = TypeVar("BodyT", bound=ApiObject)

#: Seconds a client may take to accept a piece before it counts as gone.
SEND_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """Of which object what is asked. owner: among whose streams and sessions it counts."""

    namespace: str
    name: str
    query: Mapping[str, str]
    owner: str = ""


#: Entered, it has found what is to be streamed, and gives the pieces. Raises: ApiError on entering.
Open = Callable[[StreamRequest], AbstractAsyncContextManager[AsyncIterator[bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """One that is streamed. media: of its answers; parameters: (name, OpenAPI type, description) of its query."""

    name: str
    media: str
    parameters: tuple[tuple[str, str, str], ...]
    open: Open


#: (namespace, name) of the object -> the document. Raises: ApiError, NotFound for an object that is not there.
Answer = Callable[[str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """One that is worked out. group, version and kind are those of the document that it answers."""

    name: str
    group: str
    version: str
    kind: str
    answer: Answer


class Post(Protocol):
    """What a POST does: a function from the request to the Status that answers it."""

    def __call__(
        self,
        kind: Kind,
        where: ResourcePath,
        body: bytes,
        /,
        *,
        content_type: str,
        identity: Identity,
        options: WriteOptions,
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """One that is posted to and does something else than replace a part of the object: binding and eviction of pods.

    group, version and kind are those of the document that it takes; "" where they are the object's. audited: False
    for a sign of life, of which only refusals are recorded.
    """

    name: str
    kind: str
    post: Post
    #: of the documents; None where OpenAPI says nothing of them
    type: type[ApiObject] | None = None
    group: str = ""
    version: str = ""
    audited: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What is wanted of which object, by whom. options: what `Upgraded.read` made of the query, as admission left it.

    protocols: of the client, the best first. is_spdy: else a WebSocket.
    """

    namespace: str
    name: str
    options: Any
    protocols: tuple[str, ...]
    is_spdy: bool
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """One whose connection becomes a session (`manciple.api.sockets`).

    kind: of its options, which are the query. read: they as an object, that admission is asked about (CONNECT).
    serve: returns when the session is over. check: (namespace, name, options), whether there could be one: of a request
    that asks for no upgrade. Each raises: ApiError; serve before the session is accepted.
    """

    name: str
    kind: str
    parameters: tuple[tuple[str, str, str], ...]
    read: Callable[[Mapping[str, Sequence[str]]], ApiObject]
    check: Callable[[str, str, Any], object]
    serve: Callable[[SessionRequest, Session], Coroutine[Any, Any, None]]
    media: str = "*/*"


Extension = Computed | Streamed | Connected | Upgraded

_registered: dict[str, dict[str, Extension]] = {}


def register(resource: str, subresource: Extension) -> None:
    """Serve it below every object of `resource` ("pods", "resourceclaims.resource.k8s.io"), in all versions."""
    _registered.setdefault(resource, {})[subresource.name] = subresource


def find(kind: Kind, name: str) -> Extension | None:
    """What is registered as subresource `name` of `kind`; None where nothing is."""
    return _registered.get(kind.resource, {}).get(name)


def of(kind: Kind) -> Iterable[Extension]:
    """All that is registered below `kind`, in that order."""
    return _registered.get(kind.resource, {}).values()


def wanted(scope: Scope) -> tuple[Streamed, StreamRequest] | None:
    """What this HTTP request wants streamed; None for any other request."""
    if scope["method"] != "GET" or not scope["path"].startswith(("/api/", "/apis/")):
        return None
    path = requests.parse_path(scope["path"])
    served = path.served() if path is not None and path.subresource else None
    streamed = find(served.kind, path.subresource) if path is not None and served is not None else None
    if path is None or not isinstance(streamed, Streamed):
        return None
    return streamed, StreamRequest(namespace=path.namespace, name=path.name, query=query_of(scope))


async def serve(streamed: Streamed, request: StreamRequest, scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of all streams but the watches."""
    begun = False
    try:
        admission = await admitted(scope)
        owner, limited = flow_of(admission.identity), MASTERS not in admission.identity.groups
        with OPEN.one_more(owner, limited=limited):
            async with streamed.open(replace(request, owner=owner)) as pieces:
                refuse_when_stopping()  # it may have begun meanwhile
                headers = [(b"content-type", streamed.media.encode()), (b"cache-control", b"no-cache, private")]
                begun = True
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                # An empty piece makes the server send the headers: the client learns that there is something to wait
                # for.
                await send({"type": "http.response.body", "body": b"", "more_body": True})
                await _until_the_end(_send_all(pieces, send), receive, admission)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
    except Exception as error:
        if not begun:
            await refuse(status_of(error), send)
        else:
            # Leaving without an end closes the connection: the client sees that something is missing.
            logger.warning("%s of %s/%s was interrupted: %s", streamed.name, request.namespace, request.name, error)


async def _send_all(pieces: AsyncIterator[bytes], send: Send) -> None:
    async for piece in pieces:
        async with asyncio.timeout(SEND_TIMEOUT):
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _until_the_end(sending: Coroutine[Any, Any, None], receive: Receive, admission: Admission) -> None:
    """Until all is sent, the client has gone or the server stops.

    Raises: what sending raises; why the client may not have it any more.
    """
    sender = asyncio.create_task(sending)
    gone = asyncio.create_task(_gone(receive))
    stopped = asyncio.create_task(_stopped())
    revoked = asyncio.create_task(refused(admission))
    tasks = (sender, gone, stopped, revoked)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if sender.done():
            sender.result()
        elif revoked.done():
            raise revoked.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stopped() -> None:
    await Hub.of_running_loop().stopping.wait()


async def _gone(receive: Receive) -> None:
    """Returns when the client has."""
    while (await receive())["type"] != "http.disconnect":
        pass


# Binding of pods -----------------------------------------------------------------------------------------------------


def bind(
    kind: Kind,
    where: ResourcePath,
    body: bytes,
    *,
    content_type: str,
    identity: Identity,
    options: WriteOptions,
) -> dict[str, Any]:
    """Give a waiting pod its node, and say so in its PodScheduled condition (upstream: pod/storage BindingREST).

    where: the pod, or its namespace alone: then the binding names the pod.

    Raises: NotFound; Conflict for a pod that has a node, is being deleted or is held by scheduling gates; Invalid.
    """
    binding = decoded_body(Binding, "", body, content_type=content_type, options=options)
    where = replace(where, name=where.name or binding.metadata.name)
    if binding.metadata.name != where.name:
        raise BadRequest("name in URL does not match name in Binding object")
    _check_binding(binding)
    binding = admit_body(kind, where, binding, identity=identity, options=options)
    _check_binding(binding)

    def work(writer: objects.Writer) -> None:
        pod = writer.get(kind, where.namespace, where.name)
        if pod is None:
            raise NotFound.of(kind.resource, where.name)
        document = codec.to_builtins(pod)
        _check_bindable(kind, where.name, document, binding)
        now = timestamp(datetime.now(UTC))
        bound = _bound(document, binding, now=now)
        writer.update(kind, codec.decode_value(kind.type, bound), subresource="binding")

    reads = [objects.Read(kind, where.namespace, where.name)]
    objects.write(work, identity=identity, reads=reads, dry_run=options.dry_run)
    return success(code=201)


def admit_body(kind: Kind, where: ResourcePath, body: BodyT, *, identity: Identity, options: WriteOptions) -> BodyT:
    """Ask the first stage about what was posted below an object; returns it as mutations leave it. Raises: ApiError."""
    named = structs.replace(body.metadata, namespace=where.namespace, name=where.name)
    admitted: BodyT = hooks.ask_all(
        Write(
            operation="CREATE",
            kind=kind,
            new=structs.replace(body, metadata=named),
            subresource=where.subresource,
            identity=identity,
            dry_run=options.dry_run,
            verb="create",
            version=hooks.asked_version(),
            options=hooks.asked_options("CreateOptions", dry_run=options.dry_run),
        )
    )
    return admitted


def decoded_body(type_: type[BodyT], group: str, body: bytes, *, content_type: str, options: WriteOptions) -> BodyT:
    """What was posted below an object. Raises: BadRequest."""
    kind = requests.virtual_kind(type_, group=group)
    served = Served(kind, kind.version)
    found: BodyT = requests.decode_object(served, body, content_type=content_type, strictness=options.strictness).object
    return found


def _check_binding(binding: Binding) -> None:
    """Also its labels and annotations, which the pod gets: the reference stores any.

    Raises: Invalid.
    """
    target, metadata = binding.target, binding.metadata
    wrong = validate_labels(metadata.labels, METADATA.child("labels"))
    wrong += validate_annotations(metadata.annotations, METADATA.child("annotations"))
    if target.kind not in ("", "Node"):
        wrong.append(not_supported("target.kind", target.kind, ("Node", "<empty>")))
    if not target.name:
        wrong.append(required("target.name"))
    if wrong:
        raise Invalid.of(kind="Binding", group="", name=binding.metadata.name, errors=wrong)


def _check_bindable(kind: Kind, name: str, pod: dict[str, Any], binding: Binding) -> None:
    metadata, spec = pod["metadata"], pod.get("spec", {})
    wanted = binding.metadata
    if wanted.uid and wanted.uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {metadata['uid']}"
        raise Conflict.of(kind.resource, name, why)
    if wanted.resource_version and wanted.resource_version != metadata["resourceVersion"]:
        raise Conflict.of(kind.resource, name)
    if metadata.get("deletionTimestamp"):
        raise Conflict.of("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise Conflict.of("pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise Conflict.of("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def _bound(pod: dict[str, Any], binding: Binding, *, now: str) -> dict[str, Any]:
    """The pod's document on its node."""
    metadata, status = dict(pod["metadata"]), dict(pod.get("status", {}))
    for field, added in (("annotations", binding.metadata.annotations), ("labels", binding.metadata.labels)):
        if added:
            metadata[field] = {**metadata.get(field, {}), **added}
    others = [condition for condition in status.get("conditions", ()) if condition["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    status["conditions"] = [*others, scheduled]
    status.pop("nominatedNodeName", None)
    spec = {**pod.get("spec", {}), "nodeName": binding.target.name}
    return {**pod, "metadata": metadata, "spec": spec, "status": status}


register("pods", Connected(name="binding", kind="Binding", type=Binding, post=bind))

#: POST /api/v1/namespaces/NAMESPACE/bindings: the same, of clients that name the pod only in what they post.
BINDINGS = requests.virtual_kind(Binding, group="", namespaced=True)
