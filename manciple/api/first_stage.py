"""The first stage of admission: what a write that a client wants goes through before its transaction.

Gates see what the client sent, completions fill in what a new object takes over from others, checks see what would be
stored. They may take their time; what they have read may have changed by the time of the write. A rule that has to hold
belongs to the second stage, inside the transaction (`manciple.store.hooks`).

How the client asked is told beside the write: a view says it once (`asking`). Whoever writes without a request (a page,
a controller) wrote in the stored version, and gave no options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import structs

from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.wire.errors import NotFound
from manciple.wire.registry import registry
from manciple.wire.validation import CLEANUP_FINALIZER, unqualified_finalizers

# How the client asked -------------------------------------------------------------------------------------------------


#: Options that a query may give, as the documents of options have them too.
_TEXTS = ("fieldManager", "fieldValidation")


class _Asked(NamedTuple):
    version: str = ""
    query: Mapping[str, str] = MappingProxyType({})


_NOTHING = _Asked()
_asked: ContextVar[_Asked] = ContextVar("asked", default=_NOTHING)


@contextmanager
def asking(version: str, query: Mapping[str, str]) -> Iterator[None]:
    """What is written within was asked for in this API version, with these parameters."""
    before = _asked.set(_Asked(version, query))
    try:
        yield
    finally:
        _asked.reset(before)


def version() -> str:
    """The API version of the request; "" where there is none."""
    return _asked.get().version


def options(kind: str, *, dry_run: bool) -> Mapping[str, Any]:
    """The document of `kind` (CreateOptions, UpdateOptions) that the request's parameters make."""
    query = _asked.get().query
    document: dict[str, Any] = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if dry_run:
        document["dryRun"] = ["All"]
    document.update((name, query[name]) for name in _TEXTS if query.get(name))
    return document


# Completions ----------------------------------------------------------------------------------------------------------


#: (what a client wants to create) -> the object completed. Raises: ApiError to refuse.
Completion = Callable[[Write], Any]

#: resource -> what completes it
_completions: dict[str, Completion] = {}


def register_completion(resource: str, complete: Completion) -> None:
    """Let `complete` fill in what a new object takes over from others, before it is prepared and validated.

    For what takes a look at other objects (upstream: mutating admission); what does not is `prepare_create`'s. Several
    are asked one after the other, each with what the one before it returned.
    """
    before = _completions.get(resource)
    _completions[resource] = complete if before is None else _both(before, complete)


def _both(first: Completion, second: Completion) -> Completion:
    return lambda write: second(structs.replace(write, new=first(write)))


def completed(write: Write) -> Any:
    """The new object, completed. Raises: ApiError."""
    complete = _completions.get(write.kind.resource)
    return write.new if complete is None else complete(write)


#: resource -> what refuses a new object before anybody says that it is invalid
_precedences: dict[str, Callable[[Write], None]] = {}


def register_precedence(resource: str, refuse: Callable[[Write], None]) -> None:
    """Ask `refuse` about invalid new objects: what it raises is the answer, instead of what is wrong with them.

    For rules of the transaction that complete an object: upstream asks these before it validates, here that is done
    only where it makes a difference.
    """
    _precedences[resource] = refuse


def ask_precedence(write: Write) -> None:
    """Raises: ApiError."""
    if (refuse := _precedences.get(write.kind.resource)) is not None:
        refuse(write)


# Gates and checks -----------------------------------------------------------------------------------------------------


Check = Callable[[Write], None]

#: Asked before every write that a client wants, in the order of registration. The resources of each; None: of every
#: kind.
_gates: dict[Check, Collection[str] | None] = {}
_checks: dict[Check, Collection[str] | None] = {}


def register_check(check: Check, *, resources: Collection[str] | None = None, first: bool = False) -> None:
    """Ask `check` before every write from now on; it raises an ApiError to refuse, and changes nothing.

    Registering one twice asks it once.

    first: it is a gate, shown what the client sent, before that is prepared and validated, and also where nothing would
    change (upstream: mutating admission). So who may not write an object at all neither learns what is wrong with his
    document nor is answered with the object.
    """
    (_gates if first else _checks)[check] = resources


def admit(write: Write) -> None:
    """Ask all of them about something that is not stored as it is, such as an eviction. Raises: ApiError."""
    ask_gates(write)
    ask_checks(write)


def ask_gates(write: Write) -> None:
    """Raises: ApiError, from the first gate that refuses."""
    _ask(_gates, write)


def ask_checks(write: Write) -> None:
    """Raises: ApiError, from the first check that refuses."""
    _ask(_checks, write)


def _ask(checks: Mapping[Check, Collection[str] | None], write: Write) -> None:
    for check, resources in checks.items():
        if resources is None or write.kind.resource in resources:
            check(write)


def warn_of_finalizers(write: Write) -> None:
    """Warn of a new finalizer without a domain, where the kind allows it.

    Kubernetes warns for custom resources only, and accepts it silently for the other kinds that allow it. Source:
    apiextensions-apiserver/pkg/registry/customresource/strategy.go (generateWarningsFromObj).
    """
    if write.new is None or write.subresource or not write.new.metadata.finalizers:
        return
    old = write.old.metadata.finalizers if write.old is not None else ()
    for _, name in unqualified_finalizers(write.new.metadata.finalizers, (*old, CLEANUP_FINALIZER)):
        hooks.warn(
            f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name including a path (/) to avoid '
            "accidental conflicts with other finalizer writers"
        )


def refuse_unserved(write: Write) -> None:
    """Raises: NotFound for a kind that is not served: paths of the API are not found anyway, but pages write, too."""
    kind = write.kind
    if not any(registry.versions_of(kind)):
        raise NotFound(
            f"{kind.resource} are not served: a feature gate or MANCIPLE_RUNTIME_CONFIG turned them off",
            details={"group": kind.group, "kind": kind.plural},
        )
