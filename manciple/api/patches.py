"""PATCH bodies as changes: what each patch format makes of the stored object.

JSON patch, merge patch and strategic merge patch are worked out on the document as the client sees it (in the version
it addresses); the result is decoded like any body, so unknown fields are found in patches as well.
Source: apiserver/pkg/endpoints/handlers/patch.go.

Server-side apply merges what one manager wants of an object into what is there. The applied document is sparse: fields
it does not name are not touched, fields it named before and does not now are given up. An object that is missing is
created. The merge and its conflicts are `manciple.wire.apply`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from manciple.access import authorization
from manciple.access.authorization import on_object
from manciple.api import requests, verbs
from manciple.api.requests import ResourcePath, WriteOptions
from manciple.api.verbs import WriteAnswer
from manciple.store import objects, records
from manciple.wire import codec, patch
from manciple.wire.apply import KUBECTL, LAST_APPLIED, Manager, apply_patch
from manciple.wire.base import timestamp
from manciple.wire.codec import Strictness
from manciple.wire.errors import (
    OMITTED,
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Invalid,
    NotFound,
    UnsupportedMediaType,
    immutable,
    invalid,
    required,
)
from manciple.wire.identity import Identity
from manciple.wire.managed_fields import splitting_of, unowned_of, with_entries
from manciple.wire.registry import Kind, Served, registry

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
FORMATS = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH, STRATEGIC_MERGE_PATCH)


@dataclass(slots=True)
class Patch:
    """A patch that was read and can be applied, more than once if others write in between."""

    served: Served
    apply: Callable[[dict[str, Any]], dict[str, Any]]
    strictness: Strictness
    #: whether it may say anything of managedFields
    reads_owners: bool = True

    def change(self, old: Any) -> Any:
        """The successor of a stored object. Raises: BadRequest, Invalid."""
        # Few patches are about managedFields, and what does not have any keeps those of the old object.
        shown = old if self.reads_owners else with_entries(old, ())
        patched = self.apply(self.served.document(codec.to_builtins(shown)))
        decoded = self._decoded(patched, old)
        if decoded.object.metadata.name != old.metadata.name and self.served.kind.is_open:
            named = f"({decoded.object.metadata.name}) does not match the name on the URL ({old.metadata.name})"
            raise BadRequest(f"the name of the object {named}")
        kind = self.served.kind
        uid, known = decoded.object.metadata.uid, old.metadata.uid
        if uid and uid != known:
            raise Invalid.of(
                kind=kind.kind, group=kind.group, name=old.metadata.name, errors=[immutable("metadata.uid", uid)]
            )
        for text in decoded.warnings:
            records.warn(text)
        new = self.served.completed(decoded.object, old)
        if field := kind.unpatchable:
            wrong = [error for error in kind.validate_update(new, old) if error.field != field]
            wrong.append(immutable(field, getattr(new, field)))
            raise Invalid.of(kind=kind.kind, group=kind.group, name=old.metadata.name, errors=wrong)
        return new

    def _decoded(self, patched: dict[str, Any], old: Any) -> codec.Decoded:
        """Raises: Invalid where the patch makes it something else than an object of the kind."""
        try:
            decoded = requests.decode_document(self.served, patched, strictness=self.strictness)
            if not decoded.warnings:
                return decoded
            return codec.Decoded(decoded.object, added_fields(self.served, decoded.warnings, old))
        except BadRequest as error:
            if self.strictness == "Strict":
                with suppress(BadRequest):
                    lenient = requests.decode_document(self.served, patched, strictness="Warn")
                    if not added_fields(self.served, lenient.warnings, old):
                        return codec.Decoded(lenient.object)
            # Kubernetes quotes the whole patched object, which can be a megabyte.
            wrong = invalid("patch", OMITTED, error.message)
            raise Invalid.of(kind="", group="", name="", errors=[wrong]) from error


def added_fields(served: Served, unknown: Sequence[str], old: Any) -> tuple[str, ...]:
    """The unknown fields that a write brings; the stored `old` may have some itself, of a feature that is off."""
    document = served.document(codec.to_builtins(old))
    known = set(requests.decode_document(served, document, strictness="Warn").warnings)
    return tuple(one for one in unknown if one not in known)


def media_type(content_type: str) -> str:
    """Raises: UnsupportedMediaType for a patch format that nobody knows."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in FORMATS:
        raise unknown_format(FORMATS)
    return media


def unknown_format(known: Sequence[str]) -> UnsupportedMediaType:
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(known)
    )


def read(served: Served, body: bytes, *, media: str, strictness: Strictness) -> Patch:
    """Raises: BadRequest for a body that is no JSON."""
    if served.kind.is_open and media == STRATEGIC_MERGE_PATCH:
        raise unknown_format([one for one in FORMATS if one != media])
    content = codec.read_document(body, content_type="application/json")
    formats: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        JSON_PATCH: lambda document: patch.json_patch(document, content),
        MERGE_PATCH: lambda document: patch.merge_patch(document, content),
        STRATEGIC_MERGE_PATCH: lambda document: {
            **patch.strategic_merge_patch(document, content, served.shape),
            **{name: document[name] for name in ("apiVersion", "kind")},  # whatever the patch says of them
        },
    }
    return Patch(served, formats[media], strictness, reads_owners=b"anagedFields" in body or b"\\u" in body)


# Server-side apply ----------------------------------------------------------------------------------------------------

#: What a document that is a projection of an object may say of the object's metadata.
_OF_PROJECTIONS = ("name", "namespace", "uid", "resourceVersion")


def apply(
    served: Served, where: ResourcePath, body: bytes, *, identity: Identity, options: WriteOptions
) -> WriteAnswer:
    """Apply the document in `body` to the object at `where`.

    Raises: BadRequest, Invalid, Conflict naming every field that another manager owns, NotFound (subresources only).
    """
    if not options.field_manager:
        wrong = required("fieldManager", "is required for apply patch")
        raise Invalid.of(kind="PatchOptions", group="meta.k8s.io", name="", errors=[wrong])
    document = _named(codec.read_document(body, content_type="application/yaml"), where)
    if (document.get("metadata") or {}).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    if projection := served.kind.projections.get(where.subresource):
        head = {"apiVersion": served.kind.api_version, "kind": served.kind.kind}
        metadata = {name: document["metadata"][name] for name in _OF_PROJECTIONS if name in document["metadata"]}
        wanted = {**head, "metadata": metadata, **projection.sparse(document)}
    else:
        for text in requests.decode_document(served, document, strictness=options.strictness).warnings:
            records.warn(text)
        wanted = _declared_only(served.kind, served.to_storage(document))
    return _Application(served, where, document, wanted, identity=identity, options=options).run()


def _declared_only(kind: Kind, document: dict[str, Any]) -> dict[str, Any]:
    """A sparse document of a kind whose schema knows all that it says; as it is, where a type declares the kind.

    Raises: BadRequest.
    """
    if kind.prune is None:
        return document
    dropped: list[str] = []
    kept = kind.prune(codec.as_go_reads(document, "", codec.Findings()), dropped.append)
    if dropped:
        metadata = document.get("metadata") or {}
        named = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.api_version}, Kind={kind.kind}"
        told = ", ".join(f".{path}: field not declared in schema" for path in dropped)
        raise BadRequest(f"failed to create typed patch object ({named}): {told}")
    return kept


class _Application:
    """One apply to one object."""

    def __init__(
        self,
        served: Served,
        where: ResourcePath,
        document: dict[str, Any],
        wanted: dict[str, Any],
        *,
        identity: Identity,
        options: WriteOptions,
    ) -> None:
        self._kind = served.kind
        self._where = where
        self._document = document
        self._wanted = wanted
        self._identity = identity
        self._options = options
        self._manager = Manager(
            name=options.field_manager,
            operation="Apply",
            api_version=served.kind.api_version,
            subresource=where.subresource,
        )

    def run(self) -> WriteAnswer:
        if objects.get(self._kind, self._where.namespace, self._where.name) is None:
            try:
                return self._create()
            except AlreadyExists:  # somebody else was quicker: apply to what they made
                pass
        return self._update()

    def _create(self) -> WriteAnswer:
        where, kind = self._where, self._kind
        if where.subresource:
            raise NotFound.of(kind.resource, where.name)
        if uid := self._wanted["metadata"].get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise Conflict.of(kind.resource, where.name, why)
        authorization.demand(self._identity, on_object("create", kind, namespace=where.namespace, name=where.name))
        made = verbs.create(
            kind,
            codec.decode_fitted(kind, self._merged(None)),
            namespace=where.namespace,
            identity=self._identity,
            dry_run=self._options.dry_run,
            sets_managed_fields=True,
        )
        return WriteAnswer(made, created=True)

    def _update(self) -> WriteAnswer:
        where = self._where
        return verbs.modify(
            self._kind,
            lambda old: codec.decode_fitted(self._kind, self._merged(codec.to_builtins(old))),
            namespace=where.namespace,
            name=where.name,
            identity=self._identity,
            subresource=where.subresource,
            dry_run=self._options.dry_run,
            sets_managed_fields=True,
        )

    def _merged(self, live: dict[str, Any] | None) -> dict[str, Any]:
        migrates = live is not None and self._manager.name == KUBECTL and not self._where.subresource
        merged = apply_patch(
            live,
            self._wanted,
            manager=self._manager,
            force=self._options.force,
            shape=splitting_of(self._kind),
            now=timestamp(datetime.now(UTC)),
            unowned=unowned_of(self._kind, self._where.subresource),
            last_applied=_last_applied(self._kind, live) if migrates and live else None,
            completed=lambda document: self._completed(document, live) if live else document,
        )
        return self._recorded(merged) if migrates else merged

    def _completed(self, merged: dict[str, Any], live: dict[str, Any]) -> dict[str, Any]:
        """With the defaults of an update. Raises: BadRequest."""
        kind, subresource = self._kind, self._where.subresource
        rules: Any = kind.subresources[subresource] if subresource else kind
        new, old = codec.decode_fitted(kind, merged), codec.decode_fitted(kind, live)
        return codec.to_builtins(rules.prepare_update(new, old))

    def _recorded(self, merged: dict[str, Any]) -> dict[str, Any]:
        """With what kubectl applied, where it keeps a record of that in an annotation."""
        annotations = merged["metadata"].get("annotations") or {}
        if not annotations.get(LAST_APPLIED):
            return merged
        metadata = self._document["metadata"]
        others = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != LAST_APPLIED}
        applied = {**self._document, "metadata": {**metadata, "annotations": others}}
        record = json.dumps(applied, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        kept = {**annotations, LAST_APPLIED: f"{record}\n"}
        return {**merged, "metadata": {**merged["metadata"], "annotations": kept}}


def _last_applied(kind: Kind, live: dict[str, Any]) -> dict[str, Any] | None:
    """What kubectl recorded as applied on the client's side, in the stored version; None where it is unreadable."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        document = codec.read_document(text.encode(), content_type="application/json") if text else None
        if not isinstance(document, dict):
            return None
        version = str(document.get("apiVersion")).rpartition("/")[2]
        served = registry.served(kind.group, version, kind.plural)
        if served is None:
            return None
        requests.decode_document(served, document, strictness="Ignore")
    except ApiError:
        return None
    return served.to_storage(document)


def _named(document: Any, where: ResourcePath) -> dict[str, Any]:
    """The applied document under the name and namespace of the path. Raises: BadRequest where it names others."""
    if not isinstance(document, dict) or not isinstance(document.get("metadata") or {}, dict):
        raise BadRequest("error decoding patch: an apply patch is an object")
    metadata = {"name": where.name} | (document.get("metadata") or {})
    if metadata["name"] != where.name:
        raise BadRequest(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({where.name})"
        )
    if metadata.get("namespace", where.namespace) != where.namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if where.namespace:
        metadata["namespace"] = where.namespace
    return {**document, "metadata": metadata}
