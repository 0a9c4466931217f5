"""A write as rules, expressions and webhooks see it: what is done to which object, in which version, by whom.

The documents are made when somebody asks for them, once in each version of the API: who matches nothing costs nothing.
Sources: apiserver/pkg/admission/attributes.go; .../endpoints/handlers/create.go; .../plugin/cel/condition.go
(CreateAdmissionRequest, CreateNamespaceObject).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import structs

from manciple.access.authorization import decide
from manciple.admission import environment
from manciple.admission.authorizers import AuthorizerValue
from manciple.api.namespaces import NAMESPACES
from manciple.api.requests import decode_document
from manciple.cel.documents import value_of
from manciple.store import objects
from manciple.store.hooks import Write
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.registry import Served, registry

Document = Mapping[str, Any]

#: What of a namespace's metadata expressions see.
_NAMESPACE_METADATA = (
    *("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers"),
)


class AdmissionRequest:
    """One write, for as long as it is being admitted."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.kind = write.kind
        #: in which the client wrote
        self.version = write.version or write.kind.version
        self._documents: dict[tuple[str, bool], Any] = {}
        self._values: dict[tuple[str, bool], Any] = {}

    def replaced(self, new: Any) -> AdmissionRequest:
        """The same request with another object."""
        request = AdmissionRequest(structs.replace(self.write, new=new))
        if "in_namespace" in self.__dict__ and not self.is_namespace:
            request.in_namespace = self.in_namespace
        return request

    # Names ------------------------------------------------------------------------------------------------------------

    @cached_property
    def name(self) -> str:
        body = self.write.old if self.write.old is not None else self.write.new
        return str(body.metadata.name)

    @cached_property
    def namespace(self) -> str:
        """A namespace is in itself."""
        body = self.write.new if self.write.new is not None else self.write.old
        return str(body.metadata.name if self.is_namespace else body.metadata.namespace)

    @property
    def is_namespace(self) -> bool:
        return self.kind.resource == NAMESPACES

    @cached_property
    def body_kind(self) -> str:
        """The kind of the document: the resource's, or of what a subresource takes (Binding, Eviction)."""
        body = self.write.new if self.write.new is not None else self.write.old
        return str(body.kind or self.kind.kind)

    def group_kind(self, version: str) -> dict[str, str]:
        """The document's kind when the resource is asked for in `version`."""
        if self.body_kind == self.kind.kind:
            group, own_version = self.group_version(version)
            return {"group": group, "version": own_version, "kind": self.kind.kind}
        group, _, own_version = self.write.new.api_version.rpartition("/")
        return {"group": group, "version": own_version or "v1", "kind": self.body_kind}

    def group_resource(self, version: str) -> dict[str, str]:
        group, own_version = self.group_version(version)
        return {"group": group, "version": own_version, "resource": self.kind.plural}

    def group_version(self, version: str) -> tuple[str, str]:
        """Of a version as the kind knows it."""
        group, _, own_version = version.rpartition("/")
        return group or self.kind.group, own_version

    def versions(self) -> Iterator[str]:
        """That of the request first, then the others that the resource is served in."""
        yield self.version
        yield from (served.version for served in registry.versions_of(self.kind) if served.version != self.version)

    # Objects ----------------------------------------------------------------------------------------------------------

    def labels(self) -> Iterator[Mapping[str, str]]:
        """Of the object as it will be and as it was, those of them that there are."""
        yield from (one.metadata.labels for one in (self.write.new, self.write.old) if one is not None)

    def document(self, version: str, *, old: bool = False) -> Document | None:
        """The object in that version, as builtins; None where there is none."""
        key = (version, old)
        if key not in self._documents:
            self._documents[key] = self._made(version, self.write.old if old else self.write.new)
        found: Document | None = self._documents[key]
        return found

    def _made(self, version: str, body: ApiObject | None) -> Document | None:
        if body is None:
            return None
        document = codec.to_builtins(body)
        if self.write.operation == "CONNECT":
            del document["metadata"]  # of options there is none
        served = registry.served_as(self.kind, version)
        if served is None or self.body_kind != self.kind.kind:
            return document
        return {**served.document(document), "kind": served.kind.kind, "apiVersion": served.api_version}

    def decoded(self, document: dict[str, Any], version: str) -> Any:
        """A document of that version as what is to be written in place of `write.new`. Raises: BadRequest, Invalid."""
        served = registry.served_as(self.kind, version)
        if served is None or self.body_kind != self.kind.kind:
            decoded = codec.decode_value(type(self.write.new), document)
            is_connect = self.write.operation == "CONNECT"
            return structs.replace(decoded, metadata=self.write.new.metadata) if is_connect else decoded
        decoded = decode_document(served, document, strictness="Ignore").object
        return served.completed(decoded, self.write.new)

    def _value(self, version: str, *, old: bool) -> Any:
        key = (version, old)
        if key not in self._values:
            self._values[key] = value_of(self.document(version, old=old))
        return self._values[key]

    # The namespace ----------------------------------------------------------------------------------------------------

    @cached_property
    def in_namespace(self) -> ApiObject | None:
        """The namespace that the object is in; of a namespace that is written, as it will be."""
        if self.is_namespace and not self.write.subresource and self.write.new is not None:
            return self.write.new  # type: ignore[no-any-return]
        if not self.namespace:
            return None
        kind = registry.by_resource(NAMESPACES)
        stored = objects.get(kind, "", self.namespace)
        return None if stored is None else objects.decode(kind, stored.text)

    @cached_property
    def _namespace_value(self) -> Any:
        if self.is_namespace or self.in_namespace is None:
            return None
        document = codec.to_builtins(self.in_namespace)
        metadata = {name: document["metadata"][name] for name in _NAMESPACE_METADATA if name in document["metadata"]}
        return value_of({"metadata": metadata, "spec": document.get("spec", {}), "status": document.get("status", {})})

    # What is told -----------------------------------------------------------------------------------------------------

    def attributes(self, version: str) -> dict[str, Any]:
        """The members of an AdmissionRequest that policies and webhooks are told alike."""
        write = self.write
        found: dict[str, Any] = {
            "kind": self.group_kind(version),
            "resource": self.group_resource(version),
            "subResource": write.subresource,
            "requestKind": self.group_kind(self.version),
            "requestResource": self.group_resource(self.version),
            "requestSubResource": write.subresource,
            "name": self.name,
            "namespace": self.namespace,
        }
        told = {name: value for name, value in found.items() if value}
        return told | {
            "operation": write.operation,
            "userInfo": self._user(),
            "dryRun": write.dry_run,
            "options": dict(write.options),
        }

    def _user(self) -> dict[str, Any]:
        identity = self.write.identity
        found = {
            "username": identity.name,
            "uid": identity.uid,
            "groups": list(identity.groups),
            "extra": {key: list(values) for key, values in identity.extra},
        }
        return {name: value for name, value in found.items() if value}

    def values(self, version: str, *, params: Document | None = None) -> dict[str, Callable[[], Any]]:
        """What the names of an environment stand for, each made when it is first asked for."""
        authorizer = AuthorizerValue(self.write.identity, decide)
        return {
            environment.OBJECT: lambda: self._value(version, old=False),
            environment.OLD_OBJECT: lambda: self._value(version, old=True),
            environment.REQUEST: lambda: value_of({"uid": "", **self.attributes(version)}),
            environment.PARAMS: lambda: value_of(params),
            environment.NAMESPACE: lambda: self._namespace_value,
            environment.AUTHORIZER: lambda: authorizer,
            environment.REQUEST_RESOURCE: lambda: self._own_check(authorizer),
        }

    def _own_check(self, authorizer: AuthorizerValue) -> Any:
        """The question whether somebody may do something to this very object."""
        check = authorizer.group(self.kind.group).resource(self.kind.plural)
        return check.narrowed(subresource=self.write.subresource, namespace=self.namespace, name=self.name)


def served_kind(api_version: str, kind: str) -> Served | None:
    """What is served as this kind of this version."""
    group, _, version = api_version.rpartition("/")
    return next((served for served in registry.in_version(group, version) if served.kind.kind == kind), None)
