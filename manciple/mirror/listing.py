"""What a cluster has, as far as the kubeconfig's user may list it, and what may not be read.

    found = begin(pool, remote, WHY, namespace="team-a")
    for resource in found.arriving():
        found.states[resource]  # Listed everywhere, in one namespace only, forbidden, ...
        found.pages[resource]   # raw lists in the version that was read

Discovery says which versions are served; of those we know, the first is read. Lists come in pages and compressed. A
kind that may not be listed everywhere is listed in the namespace. A kind that the server does not have is empty; one
that may not be read, or that failed, is unknown: nobody may conclude anything from it (`judgement`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import msgspec

from manciple.mirror.client import FORBIDDEN, GONE, NOT_FOUND, PARALLEL, Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.json_texts import Malformed, decoded
from manciple.mirror.sources import COPIED, LEASE, KindState, Reach, Source

#: Objects a page.
PAGE: Final = 500
#: Seconds for the server's own metrics, which may be megabytes.
METRICS_SECONDS: Final = 1.0
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
_GATE = re.compile(r'name="(?P<name>[A-Za-z0-9]+)".*} (?P<on>[01])')


# What was found -------------------------------------------------------------------------------------------------------


Listed = tuple[KindState, list[msgspec.Raw]]


@dataclass(slots=True)
class Found:
    """By resource. namespace: where what may not be listed everywhere was listed; single: an object that was read by
    its name, where its kind may not be listed. gates: what the server says of its feature gates, where it does.
    coming, about: what is still being read: lists, and the version with the gates.
    """

    namespace: str
    states: dict[str, KindState] = field(default_factory=dict)
    pages: dict[str, list[msgspec.Raw]] = field(default_factory=dict)
    single: tuple[Source, str, bytes] | None = None
    version: str = ""  # of the server: "v1.34.1"
    gates: Mapping[str, bool] = field(default_factory=dict)
    coming: dict[str, Future[Listed]] = field(default_factory=dict)
    about: tuple[Future[str], Future[Mapping[str, bool]]] | None = None

    def arriving(self) -> Iterator[str]:
        """The resources, each once its list is there; at the end everything is. Raises: RemoteFailure."""
        yield from [*self.states]
        while self.coming:
            resource = next(iter(self.coming))
            self.states[resource], self.pages[resource] = self.coming.pop(resource).result()
            yield resource
        if self.about is not None:
            version, gates = self.about
            self.version, self.gates, self.about = version.result(), gates.result(), None
        if self.states and all(state.reach is Reach.FAILED for state in self.states.values()):
            raise RemoteFailure(next(iter(self.states.values())).detail)

    def note_unread(self, resource: str, count: int) -> None:
        self.states[resource] = replace(self.states[resource], unread=count)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One object, which must exist."""

    source: Source
    namespace: str
    name: str


class _ListMeta(msgspec.Struct, rename="camel"):
    continue_: str | None = msgspec.field(default="", name="continue")
    resource_version: str | None = ""


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Name(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Name


class _Names(msgspec.Struct):
    items: list[_Named] | None = None


_lists, _named = msgspec.json.Decoder(_List), msgspec.json.Decoder(_Names)
_anything: Callable[[bytes], Any] = msgspec.json.Decoder(Any).decode


def begin(
    pool: Executor, remote: Remote, sources: Sequence[Source], *, namespace: str, wanted: Wanted | None = None
) -> Found:
    """What comes while threads of `pool` list.

    Raises: RemoteFailure where `wanted` does not exist or may not be read, or the server cannot be reached.
    """
    found = Found(namespace)
    found.about = pool.submit(software_version, remote), pool.submit(reported_gates, remote)
    served = discovered(remote)
    if wanted is not None:
        found.single = (wanted.source, *_object(remote, wanted, served))
    found.coming = {one.resource: pool.submit(_listed, remote, one, served(one), namespace) for one in sources}
    return found


def read(remote: Remote, sources: Sequence[Source], *, namespace: str, wanted: Wanted | None = None) -> Found:
    """All of it. Raises: RemoteFailure, as `begin` and `Found.arriving`."""
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="list") as pool:
        found = begin(pool, remote, sources, namespace=namespace, wanted=wanted)
        for _ in found.arriving():
            pass
    return found


def software_version(remote: Remote) -> str:
    """Such as "v1.34.1"; "" where the server does not say."""
    try:
        return str(decoded(_anything, remote.get("/version")).get("gitVersion", ""))
    except (RemoteFailure, Malformed, AttributeError):
        return ""


def reported_gates(remote: Remote) -> Mapping[str, bool]:
    """Of the server's metrics, which few may read."""
    try:
        lines = [*remote.lines("/metrics", beginning="kubernetes_feature_enabled{", seconds=METRICS_SECONDS)]
    except RemoteFailure:
        return {}
    return {match["name"]: match["on"] == "1" for match in map(_GATE.search, lines) if match}


# Discovery ------------------------------------------------------------------------------------------------------------


#: The versions in which a resource is served, the best first; all that we know where the server does not say.
Served = Callable[[Source], tuple[str, ...]]


def discovered(remote: Remote) -> Served:
    """Raises: RemoteFailure where the server cannot be reached, or does not know who asks."""
    try:
        groups = decoded(_anything, remote.get("/apis", accept=_AGGREGATED))
        places = set(
            _aggregated(groups) if groups.get("kind") == "APIGroupDiscoveryList" else _one_by_one(remote, groups)
        )
    except RemoteFailure as failure:
        if failure.code != FORBIDDEN:
            raise
        return lambda source: source.versions
    except (Malformed, KeyError, TypeError, AttributeError) as error:
        raise RemoteFailure(
            f"the server's list of its APIs cannot be read ({error}): is it a Kubernetes API?"
        ) from error
    return lambda source: tuple(
        version for version in source.versions if not source.group or (source.group, version, source.plural) in places
    )


def _aggregated(groups: Any) -> Iterable[tuple[str, str, str]]:
    for group in groups["items"]:
        for version in group["versions"]:
            for one in version.get("resources") or ():
                yield group["metadata"]["name"], version["version"], one["resource"]


def _one_by_one(remote: Remote, groups: Any) -> Iterable[tuple[str, str, str]]:
    """Of a server without aggregated discovery."""
    ours = {source.group for source in (*COPIED, LEASE)}
    for group in groups["groups"]:
        if group["name"] not in ours:
            continue
        for version in group["versions"]:
            listed = decoded(_anything, remote.get(f"/apis/{version['groupVersion']}"))
            for one in listed.get("resources") or ():
                yield group["name"], version["version"], one["name"]


# Lists ----------------------------------------------------------------------------------------------------------------


def _object(remote: Remote, wanted: Wanted, served: Served) -> tuple[str, bytes]:
    """(version, document)."""
    source, versions = wanted.source, served(wanted.source)
    if not versions:
        raise RemoteFailure(f"the server has no {source.resource}: it needs Kubernetes 1.31 or later, with DRA enabled")
    path = source.path(versions[0], namespace=wanted.namespace, name=wanted.name)
    try:
        return versions[0], remote.get(path)
    except RemoteFailure as failure:
        if failure.code == NOT_FOUND:
            advice = _close_to(remote, wanted, source.path(versions[0], namespace=wanted.namespace))
        elif failure.code == FORBIDDEN:
            advice = "ask for a role that may read it, or name another user or context"
        else:
            raise
        raise RemoteFailure(f"{failure}: {advice}", code=failure.code) from failure


def _close_to(remote: Remote, wanted: Wanted, path: str) -> str:
    """What somebody may have meant who named what is not there."""
    found = list[str]()
    with suppress(RemoteFailure, msgspec.MsgspecError):  # it may not be listed
        found = [one.metadata.name for one in _named.decode(remote.get(path, {"limit": str(PAGE)})).items or ()]
    if close := get_close_matches(wanted.name, found, n=3):
        return f"in namespace {wanted.namespace} there is {' and '.join(close)}"
    plural = wanted.source.plural
    return f"name another namespace with -n, or see `kubectl get {plural} -n {wanted.namespace}`"


def _listed(remote: Remote, source: Source, versions: Sequence[str], namespace: str) -> Listed:
    state = KindState(source, Reach.ABSENT, detail="the server does not have it")
    for version in versions:
        try:
            return KindState(source, Reach.EVERYWHERE, version), _all_pages(remote, source.path(version))
        except RemoteFailure as failure:
            if failure.code == NOT_FOUND:
                continue
            state = KindState(source, Reach.FAILED, version, str(failure))
            if failure.code != FORBIDDEN:
                return state, []
            state = replace(state, reach=Reach.FORBIDDEN)
            if not source.namespaced or not namespace:
                return state, []
            with suppress(RemoteFailure):
                items = _all_pages(remote, source.path(version, namespace=namespace))
                return replace(state, reach=Reach.NAMESPACE), items
            return state, []
    return state, []


class ListedPage(NamedTuple):
    """is_first: what came before, if anything, does not count. version: of the list."""

    items: Sequence[msgspec.Raw]
    version: str
    is_first: bool


def _all_pages(remote: Remote, path: str) -> list[msgspec.Raw]:
    """Raises: RemoteFailure."""
    items: list[msgspec.Raw] = []
    for page in pages(remote, path):
        if page.is_first:
            items = []
        items += page.items
    return items


def pages(remote: Remote, path: str, *, selector: str = "") -> Iterator[ListedPage]:
    """A list of one moment. selector: of labels; "" for all. Raises: RemoteFailure."""
    wanted = {"labelSelector": selector} if selector else {}
    params, is_first = {**wanted, "limit": str(PAGE)}, True
    while True:
        try:
            page = decoded(_lists.decode, remote.get(path, params))
        except Malformed as error:
            raise RemoteFailure(f"the list {path} cannot be read: {error}") from error
        except RemoteFailure as failure:
            if failure.code != GONE or "continue" not in params:
                raise
            # The state that the pages were of is gone: all in one.
            params, is_first = wanted, True
            continue
        yield ListedPage(page.items or (), page.metadata.resource_version or "", is_first)
        if not page.metadata.continue_:
            return
        params, is_first = {**wanted, "limit": str(PAGE), "continue": page.metadata.continue_}, False
