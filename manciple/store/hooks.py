"""What the apps hook into every write: admission in two stages, finishers, and projectors of index rows.

**The first stage** comes before the transaction, for writes that a client wants. Gates see what the client sent,
completions fill in what a new object takes over from others, mutations change it, checks see what would be stored. They
may be slow; what they have read may have changed by the time of the write. How the client asked is recorded beside the
write: a view says it once (`asking`). Writers without a request (pages, controllers) write in the stored version,
without options.

**The second stage** is rules, inside the writer's transaction. They are asked for every creation, update and deletion,
by any writer on any path (REST, pages, controllers, scheduler), just before the write is taken up, and know who writes.
The transaction holds the store's lock, so what a rule reads through the writer is current until the commit: it can
count and charge without a race. It may itself write, and leave a note for the next write (`Writer.note`); both are
undone with the write that it was asked for. It refuses by raising an ApiError. An object that it returns is written in
place of the one in question; None lets that stand.

Rules and checks may also warn the client, and annotate the audit trail (`records.warn`, `records.annotate`).

A finisher is called once a transaction, before anything is stored: it writes what rules have put together on the way.

A projector keeps the index rows of a resource. `project(changes)` runs inside the writing transaction, once a
transaction and resource, with what the transaction did to each object altogether (deletions first). It may raise an
ApiError, which undoes the whole transaction. `clear()` removes every row that `project` could have written, so that
`manage.py reindex` can start from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from manciple.per_process import PerProcess
from manciple.store.records import Change, warn
from manciple.wire.base import ApiObject
from manciple.wire.errors import NotFound
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind, registry
from manciple.wire.validation import CLEANUP_FINALIZER, unqualified_finalizers

if TYPE_CHECKING:  # the writer asks the rules
    from manciple.store.writer import Writer

# Rules ----------------------------------------------------------------------------------------------------------------


Operation = Literal["CONNECT", "CREATE", "UPDATE", "DELETE"]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write, about to be done. `new` is None on DELETE, `old` on CREATE; `subresource` is "" for the object.

    CONNECT writes nothing: `new` are the options of a session with the object, whose name and namespace they have.
    verb: what the client asked for ("create", "update", "patch", "delete"), where the API's verbs know; else "".
    version: of the API, in which the client asked; "" for the stored one. options: CreateOptions, UpdateOptions or
    DeleteOptions as a document.
    """

    operation: Operation
    kind: Kind
    new: Any = None
    old: Any = None
    subresource: str = ""
    identity: Identity
    dry_run: bool = False
    verb: str = ""
    version: str = ""
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)


#: what is returned is written in place of `write.new`; None lets that stand
Rule = Callable[["Writer", Write], ApiObject | None]
Finisher = Callable[["Writer"], None]


@dataclass(frozen=True, slots=True)
class _RegisteredRule:
    rule: Rule
    operations: frozenset[Operation]
    resources: frozenset[str] | None  # None: of every kind


_rules: list[_RegisteredRule] = []


class _RulesFor(dict[tuple[Operation, str], tuple[Rule, ...]]):
    def __missing__(self, key: tuple[Operation, str]) -> tuple[Rule, ...]:
        operation, resource = key
        rules = self[key] = tuple(
            known.rule
            for known in _rules
            if operation in known.operations and (known.resources is None or resource in known.resources)
        )
        return rules


#: (operation, resource) -> the rules that are asked before such a write; filled as it is needed
rules_for = _RulesFor()


def register_rule(rule: Rule, *, operations: Collection[Operation], resources: Collection[str] | None = None) -> None:
    """Ask `rule` before these writes from now on, after those registered before it; again replaces what was said."""
    unregister_rule(rule)
    _rules.append(_RegisteredRule(rule, frozenset(operations), None if resources is None else frozenset(resources)))


def unregister_rule(rule: Rule) -> None:
    _rules[:] = [known for known in _rules if known.rule is not rule]
    rules_for.clear()


FINISHERS: list[Finisher] = []


def register_finisher(finish: Finisher) -> None:
    """Call `finish` at the end of every transaction that wrote something, before it is stored. Twice is once."""
    if finish not in FINISHERS:
        FINISHERS.append(finish)


def unregister_finisher(finish: Finisher) -> None:
    FINISHERS.remove(finish)


# What rules go by -----------------------------------------------------------------------------------------------------


T = TypeVar("T")


class _Known(NamedTuple, Generic[T]):
    """policy: the revision for which `by_namespace` is right."""

    policy: int
    by_namespace: dict[str, T]


class PolicyCache(Generic[T]):
    """The objects by which other writes are judged, at no cost while none of them changes.

    A limit or a default counts for every write that is committed after it. To look it up anew in each transaction would
    cost each a query, most often to find that there is none. So the counter's row, which every transaction reads first,
    names the revision that changed a policy last (`Kind.policy_of`): what was read in a transaction of the same number
    is current. A transaction that changes a policy itself reads what it needs each time, and leaves nothing behind.

        CLASSES = PolicyCache("priorityclasses.scheduling.k8s.io", by_name)

        def rule(writer, write):
            classes = CLASSES.of(writer)        # {name: class}, as this transaction sees them
    """

    def __init__(self, resource: str, read: Callable[[tuple[Any, ...]], T], *, nothing: T | None = None) -> None:
        """nothing: what there is without any object, where `read` need not be asked."""
        self._resource, self._read, self._nothing = resource, read, nothing
        self._known = PerProcess(lambda: _Known[T](-1, {}))

    def of(self, writer: Writer, namespace: str = "") -> T:
        """For the objects in `namespace`; "" for a kind that lives in none, or for all. One query where it is new."""
        policy = writer.policy
        if policy is None:
            return self._listed(writer, namespace)
        known = self._known.value
        if known.policy != policy:
            # Another thread may do the same: each keeps the one that it has seen itself.
            self._known.value = known = _Known(policy, {})
        if namespace not in known.by_namespace:
            known.by_namespace[namespace] = self._listed(writer, namespace)
        return known.by_namespace[namespace]

    def _listed(self, writer: Writer, namespace: str) -> T:
        found = writer.list(registry.by_resource(self._resource), namespace=namespace)
        return self._read(found) if found or self._nothing is None else self._nothing


# Projectors -----------------------------------------------------------------------------------------------------------


Project = Callable[[Sequence[Change]], None]
Clear = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Projector:
    resource: str
    project: Project
    clear: Clear


#: By resource.
PROJECTORS: dict[str, Projector] = {}


def register_projector(resource: str, project: Project, *, clear: Clear) -> None:
    """Let `project` index `resource`. Raises: ValueError when another function does so already."""
    known = PROJECTORS.get(resource)
    if known is not None and known.project is not project:
        raise ValueError(f"{resource} has a projector already")
    PROJECTORS[resource] = Projector(resource, project, clear)


def unregister_projector(resource: str) -> None:
    PROJECTORS.pop(resource, None)


def differences(changes: Sequence[Change], row_of: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
    """(rows to remove, rows to write) of kinds with one row an object; a row that stays as it is is in neither."""
    removed, written = [], []
    for change in changes:
        old = None if change.previous is None else row_of(change.previous)
        new = None if change.type == "DELETED" else row_of(change.object)
        if old != new:
            removed.extend([] if old is None else [old])
            written.extend([] if new is None else [new])
    return removed, written


# First stage: how the client asked ------------------------------------------------------------------------------------


#: Options that a query may give, as the documents of options have them too.
_TEXTS = ("fieldManager", "fieldValidation")


class _Asked(NamedTuple):
    version: str = ""
    query: Mapping[str, str] = MappingProxyType({})


_NOT_ASKED = _Asked()
_asked: ContextVar[_Asked] = ContextVar("asked", default=_NOT_ASKED)


@contextmanager
def asking(version: str, query: Mapping[str, str]) -> Iterator[None]:
    """What is written within was asked for in this API version, with these parameters."""
    before = _asked.set(_Asked(version, query))
    try:
        yield
    finally:
        _asked.reset(before)


def asked_version() -> str:
    """The API version of the request; "" where there is none."""
    return _asked.get().version


def asked_options(kind: str, *, dry_run: bool) -> Mapping[str, Any]:
    """The document of `kind` (CreateOptions, UpdateOptions) that the request's parameters make."""
    query = _asked.get().query
    document: dict[str, Any] = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if dry_run:
        document["dryRun"] = ["All"]
    document.update((name, query[name]) for name in _TEXTS if query.get(name))
    return document


# First stage: completions ---------------------------------------------------------------------------------------------


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


# First stage: mutations -----------------------------------------------------------------------------------------------


#: (a write, what completes an object that was changed) -> what is to be written in place of `write.new`
Mutate = Callable[[Write, Callable[[Any], Any]], Any]

_mutations: list[Mutate] = []


def register_mutation(mutate: Mutate) -> None:
    """Let `mutate` change what clients write, after it was prepared and before it is validated. Twice is once."""
    if mutate not in _mutations:
        _mutations.append(mutate)


def mutated(write: Write, prepare: Callable[[Any], Any] = lambda new: new) -> Any:
    """What is to be written; `write.new` itself where nobody changes it. Raises: ApiError."""
    for mutate in _mutations:
        write = structs.replace(write, new=mutate(write, prepare))
    return write.new


# First stage: gates and checks ----------------------------------------------------------------------------------------


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


def ask_all(write: Write) -> Any:
    """Ask all of them about something that is not stored as it is, such as an eviction; returns it as mutations leave
    it. Raises: ApiError.
    """
    ask_gates(write)
    new = mutated(write)
    ask_checks(structs.replace(write, new=new))
    return new


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
        warn(
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
