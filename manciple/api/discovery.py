"""What clients ask first: which groups, versions and resources there are, and what can be done with each.

Everything is derived from the registry; the few resources that are no stored kind stand in `reviews`,
what is no part of an object (bindings, logs) in `subresources`. Both forms are served: the legacy documents
(`/api`, `/apis`, `/apis/G/V`), and the aggregated one for clients whose Accept says `as=APIGroupDiscoveryList` with
`v=v2`.

And `GET /version`: the Kubernetes release whose behaviour the API follows, and which Manciple this is.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from manciple import layout
from manciple.api import runtime_config, subresources
from manciple.api.computed import COMPUTED
from manciple.api.reviews import REVIEWS
from manciple.api.subresources import Connected, Streamed, Upgraded
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind, Served, registry

# Version --------------------------------------------------------------------------------------------------------------


#: The Kubernetes release that kinds, defaults and messages are taken from.
KUBERNETES_MAJOR, KUBERNETES_MINOR, KUBERNETES_PATCH = "1", "36", "0"


def version() -> dict[str, str]:
    """version.Info of apimachinery."""
    release = f"v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.{KUBERNETES_PATCH}+manciple.{layout.version()}"
    return {
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "gitVersion": release,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


# Resources ------------------------------------------------------------------------------------------------------------


SUBRESOURCE_VERBS = {"status": ("get", "patch", "update"), "finalize": ("update",)}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredResource:
    """One line of discovery. `name` is "pods" or "pods/status"; group and version are those of the kind it answers.

    streamed: what answers instead of a document of that kind.
    """

    name: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    group: str = ""
    version: str = ""
    streamed: Streamed | Upgraded | None = None
    list_kind: str = ""
    #: whether a PATCH may be a strategic merge
    strategic: bool = True
    #: of a subresource with documents of another kind: the kind that it is a part of
    owner: str = ""
    #: of documents that are never stored
    type: type[ApiObject] | None = None


def group_versions() -> dict[str, tuple[str, ...]]:
    """Every group ("" is core) with its versions, preferred first."""
    found = dict(registry.groups())
    for group, version, plural in (*REVIEWS, *COMPUTED):
        if not runtime_config.serves(group, version, plural):
            continue
        found[group] = tuple(dict.fromkeys((*found.get(group, ()), version)))
    return found


def resources(group: str, version: str) -> tuple[DiscoveredResource, ...]:
    """What is served in one API version, subresources after their resource; () where there is no such version."""
    stored = (line for one in registry.in_version(group, version) for line in _lines(one))
    answered = [kind for place, kind in REVIEWS.items() if runtime_config.serves(*place)]
    virtual = (kind for kind in (*answered, subresources.BINDINGS) if (kind.group, kind.version) == (group, version))
    computed = (one.kind for place, one in COMPUTED.items() if place[:2] == (group, version))
    served = (kind for kind in computed if runtime_config.serves(group, version, kind.plural))
    return (*stored, *map(_review, virtual), *map(_computed, served))


def _computed(kind: Kind) -> DiscoveredResource:
    """What is worked out and never stored."""
    return DiscoveredResource(
        name=kind.plural, kind=kind.kind, singular=kind.singular, namespaced=kind.namespaced, verbs=kind.verbs
    )


def _review(kind: Kind) -> DiscoveredResource:
    """What is answered and never stored."""
    return DiscoveredResource(
        name=kind.plural,
        kind=kind.kind,
        singular=kind.singular,
        namespaced=kind.namespaced,
        verbs=("create",),
        type=kind.type,
    )


def _lines(one: Served) -> Iterator[DiscoveredResource]:
    kind = one.kind
    yield DiscoveredResource(
        name=kind.plural,
        kind=kind.kind,
        singular=kind.singular,
        namespaced=kind.namespaced,
        verbs=kind.verbs,
        short_names=kind.short_names,
        categories=kind.categories,
        list_kind=kind.list_kind,
        strategic=not kind.is_open,
    )
    for name in kind.subresources:
        yield DiscoveredResource(
            name=f"{kind.plural}/{name}",
            kind=kind.kind,
            namespaced=kind.namespaced,
            strategic=not kind.is_open,
            verbs=SUBRESOURCE_VERBS.get(name, ("get", "patch", "update")),
        )
    for name, projection in kind.projections.items():
        yield DiscoveredResource(
            name=f"{kind.plural}/{name}",
            kind=projection.kind,
            namespaced=kind.namespaced,
            verbs=("get", "patch", "update"),
            group=projection.group,
            version=projection.version,
            strategic=not kind.is_open,
            owner=kind.kind,
            type=projection.type,
        )
    for below in subresources.of(kind):
        name = f"{kind.plural}/{below.name}"
        if isinstance(below, Streamed):
            yield DiscoveredResource(
                name=name, kind=kind.kind, namespaced=kind.namespaced, verbs=("get",), streamed=below
            )
        elif isinstance(below, Upgraded):
            yield DiscoveredResource(
                name=name,
                kind=below.kind,
                owner=kind.kind,
                namespaced=kind.namespaced,
                verbs=("create", "get"),
                streamed=below,
            )
        else:
            yield DiscoveredResource(
                name=name,
                kind=below.kind,
                owner=kind.kind,
                namespaced=kind.namespaced,
                verbs=("create",) if isinstance(below, Connected) else ("get",),
                group=below.group,
                version=below.version,
                type=below.type if isinstance(below, Connected) else None,
            )


# The legacy documents -------------------------------------------------------------------------------------------------


def core_versions(address: str) -> dict[str, Any]:
    """GET /api. `address` is the HOST:PORT under which the client reached the server."""
    return {
        "kind": "APIVersions",
        "versions": list(group_versions().get("", ())),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list() -> dict[str, Any]:
    """GET /apis."""
    groups = [_group(name, versions) for name, versions in group_versions().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(name: str) -> dict[str, Any] | None:
    """GET /apis/G; None where there is no such group."""
    versions = group_versions().get(name, ())
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if name and versions else None


def resource_list(group: str, version: str) -> dict[str, Any] | None:
    """GET /apis/G/V or /api/v1; None where nothing is served there."""
    lines = resources(group, version)
    if not lines:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [_legacy_line(line) for line in lines],
    }


def _group(name: str, versions: Iterable[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _legacy_line(line: DiscoveredResource) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": line.name,
        "singularName": line.singular,
        "namespaced": line.namespaced,
        "kind": line.kind,
        "verbs": list(line.verbs),
    }
    optional = {
        "group": line.group,
        "version": line.version,
        "shortNames": list(line.short_names),
        "categories": list(line.categories),
    }
    return document | {name: value for name, value in optional.items() if value}


# The aggregated document ----------------------------------------------------------------------------------------------


def wants_aggregated(accept: str) -> bool:
    """Whether the client understands the aggregated form in its v2; older forms are not served."""
    return any(
        {"as=APIGroupDiscoveryList", "v=v2"} <= {part.strip() for part in clause.split(";")}
        for clause in accept.split(",")
    )


def aggregated(*, core: bool) -> dict[str, Any]:
    """GET /api (the core group) or /apis (all others) as APIGroupDiscoveryList."""
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None},
            "versions": [_aggregated_version(name, version) for version in versions],
        }
        for name, versions in group_versions().items()
        if (name == "") == core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_version(group: str, version: str) -> dict[str, Any]:
    lines = resources(group, version)
    tops = [line for line in lines if "/" not in line.name]
    return {
        "version": version,
        "resources": [_aggregated_resource(line, lines, group=group, version=version) for line in tops],
        "freshness": "Current",
    }


def _aggregated_resource(
    line: DiscoveredResource, lines: Iterable[DiscoveredResource], *, group: str, version: str
) -> dict[str, Any]:
    document = {
        "resource": line.name,
        "responseKind": _response_kind(line, group, version),
        "scope": "Namespaced" if line.namespaced else "Cluster",
        "singularResource": line.singular,
        "verbs": list(line.verbs),
    }
    subresources = [
        {
            "subresource": below.name.partition("/")[2],
            "responseKind": _response_kind(below, group, version),
            "verbs": list(below.verbs),
        }
        for below in lines
        if below.name.startswith(f"{line.name}/")
    ]
    optional = {
        "shortNames": list(line.short_names),
        "categories": list(line.categories),
        "subresources": subresources,
    }
    return document | {name: value for name, value in optional.items() if value}


def _response_kind(line: DiscoveredResource, group: str, version: str) -> dict[str, str]:
    return {"group": line.group or group, "version": line.version or version, "kind": line.kind}
