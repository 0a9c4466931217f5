"""What a path of the API means: group, version, namespace, resource, name, subresource.

    /api/v1/namespaces/NS/pods/NAME/status          /apis/GROUP/VERSION/PLURAL/NAME
    /api/v1/watch/namespaces/NS/pods                the old spelling of ?watch=true

Used by the REST views and by the watch streams alike. Source: apiserver/pkg/endpoints/request/requestinfo.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from manciple.api import served
from manciple.api.served import Served

#: What stands behind a namespace's name and is no resource in that namespace.
NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_DEEPEST = len(("plural", "name", "subresource"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePath:
    """namespace "" means cluster-wide, name "" the collection, subresource "" the object itself."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False

    def served(self) -> Served | None:
        """The kind served here; None where there is none, or its scope does not fit the path."""
        found = served.find(self.group, self.version, self.plural)
        if found is None:
            return None
        if found.kind.namespaced:
            return found if self.namespace or not self.name else None
        return None if self.namespace else found


def parse(path: str) -> ResourcePath | None:
    """The resource that `path` names; None for any path that is not of that form (discovery, pages)."""
    segments = [segment for segment in path.split("/") if segment]
    match segments:
        case ["api", "v1", *rest]:
            return _resource("", "v1", rest)
        case ["apis", group, version, *rest]:
            return _resource(group, version, rest)
    return None


def _resource(group: str, version: str, rest: list[str]) -> ResourcePath | None:
    watch = rest[:1] == ["watch"]
    if watch:
        rest = rest[1:]
    namespace = ""
    match rest:
        case ["namespaces", in_namespace, first, *deeper] if first not in NAMESPACE_SUBRESOURCES:
            namespace, rest = in_namespace, [first, *deeper]
    if not 1 <= len(rest) <= _DEEPEST:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return ResourcePath(
        group=group,
        version=version,
        plural=plural,
        namespace=namespace,
        name=name,
        subresource=subresource,
        watch=watch,
    )
