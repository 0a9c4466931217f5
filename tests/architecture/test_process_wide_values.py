"""Whatever a process caches is a `PerProcess` value, so one call resets everything; no module keeps state beside it."""

from __future__ import annotations

import ast
import os
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import pytest

from manciple.controllers.turns import Rest
from manciple.per_process import PerProcess, every, reset_all
from manciple.store.event_log import Follower
from manciple.store.hooks import PolicyCache
from manciple.telemetry import metrics
from manciple.wire.base import Alike
from scheduling.allocator.published import Interner

PACKAGES = ("manciple", "inventory", "claims", "scheduling", "insight", "dashboard")
CONTAINERS = (dict, list, set, deque, Counter, OrderedDict, defaultdict)
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "update",
}  # fmt: skip
#: They keep their state in a `PerProcess`.
MANAGED = (PerProcess, Follower, PolicyCache, Rest)
#: Their entries live as long as objects elsewhere, or are only seen by one thread.
BOUND_TO_OTHERS = (WeakKeyDictionary, WeakSet, WeakValueDictionary, threading.local)

#: Counters, or one object for equal values: what they return does not depend on what they have seen.
PURE = (metrics.Children, metrics.ClusterMetrics, Alike, Interner)

#: Module-level values that change, or could, and are no caches: why.
OTHERS: dict[str, tuple[str, ...]] = {
    "filled while Django starts": (
        "inventory.kinds.device_rules._checkers",
        "manciple.access.authentication.chain._requests",
        "manciple.access.authentication.chain._tokens",
        "manciple.access.authorization._authorizers",
        "manciple.access.authorization._refusals",
        "manciple.access.authorization._resolvers",
        "manciple.access.mirrored._copied",
        "manciple.access.people.READ_WITH",
        "manciple.gaps.sources",
        "manciple.access.webhook_client._pod_connectors",
        "manciple.store.hooks._checks",
        "manciple.store.hooks._completions",
        "manciple.store.hooks._gates",
        "manciple.store.hooks._mutations",
        "manciple.store.hooks._precedences",
        "manciple.api.health._checks",
        "manciple.api.health._live",
        "manciple.api.computed.COMPUTED",
        "manciple.api.reviews.REVIEWS",
        "manciple.api.reviews._registered",
        "manciple.api.streams.DEFINING",
        "manciple.api.subresources._registered",
        "manciple.live.notices._source",
        "manciple.live.topics._registered",
        "manciple.live.topics._sight",
        "manciple.memory._steps",
        "manciple.notifications.sight._asked",
        "manciple.store.event_log.LOG",  # its documents are weak
        "manciple.store.hooks.FINISHERS",
        "manciple.store.hooks.PROJECTORS",
        "manciple.store.hooks._rules",
        "manciple.store.hooks.rules_for",
        "manciple.store.space._readers",
        "manciple.store.resealing._others",
        "manciple.telemetry.logs._describing",
        "manciple.telemetry.metrics._cluster",
        "manciple.telemetry.metrics._of_pods",
        "manciple.wire.registry.registry",
    ),
    "filled when an extension of the scheduler is imported": (
        "scheduling.queue.hints.FURTHER_RULES",
        "scheduling.queue.hints.RESOURCES",
    ),
    "configured while Django starts": ("inventory.kinds.gates._now", "manciple.api.runtime_config._now"),
    "what is being done at this moment": (
        "manciple.api.flow_control.COSTLY",
        "manciple.api.flow_control.SHORT_TURNS",
        "manciple.api.sessions.OPEN",
        "manciple.controllers.tasks._running",
        "manciple.live.consumers._open",
        "manciple.store.sql._turn",
    ),
    "a constant whose type could change": (
        "claims.devices.holdings._NOBODY",
        "claims.devices.published._NO_DRAW",
        "dashboard.inventory.devices.grid._GRID",
        "manciple.cel.values.EMPTY_MAP",
        "manciple.store.writer.NOTHING",
        "manciple.wire.base.EMPTY",
        "manciple.wire.managed_fields.NOTHING",
        "manciple.wire.managed_fields._LEAF",
        "scheduling.allocator.published.NO_RULES",
        "scheduling.allocator.snapshot.NO_USAGE",
        "scheduling.allocator.snapshot._NO_DRAWS",
    ),
}


@cache
def modules() -> tuple[ModuleType, ...]:
    names = [
        found.name
        for package in PACKAGES
        for found in walk_packages(import_module(package).__path__, f"{package}.")
        if not found.name.endswith("__main__") and ".migrations." not in found.name
    ]
    return tuple(import_module(name) for name in [*PACKAGES, *names])


@dataclass(slots=True)
class Source:
    """What one module does, found in one pass. changed: names that its functions change. changing: its classes whose
    methods change their instances. cached: its memoised functions, with the names that they use."""

    assigned: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    changing: set[str] = field(default_factory=set)
    memoised: dict[str, set[str]] = field(default_factory=dict)

    def read(self, node: ast.AST, *, function: str = "", class_: str = "") -> None:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in CHANGES:
                self._note(value, function, class_)
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) | ast.Attribute(value=value, ctx=ast.Store()):
                self._note(value, function, class_)
            case ast.Name(id=name, ctx=ast.Store()) if not function and not class_:
                self.assigned.add(name)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if not function and not class_ and is_empty(value):
                self.changed.add(name)  # it would be of no use, if it was never filled
                self.assigned.add(name)
            case ast.Global(names=names):
                self.replaced.update(names)
            case ast.ClassDef(name=name):
                class_ = name
            case ast.FunctionDef(name=name, decorator_list=decorators):
                function = function or name
                if any(ast.unparse(one).partition("(")[0].rpartition(".")[2] in MEMOS for one in decorators):
                    self.memoised[name] = {
                        one.id if isinstance(one, ast.Name) else one.attr
                        for one in ast.walk(node)
                        if isinstance(one, ast.Name | ast.Attribute)
                    }
            case ast.AsyncFunctionDef(name=name):
                function = function or name
        for child in ast.iter_child_nodes(node):
            self.read(child, function=function, class_=class_)

    def _note(self, value: ast.expr, function: str, class_: str) -> None:
        inner = value.value if isinstance(value, ast.Attribute) else value
        if isinstance(inner, ast.Name) and inner.id == "self" and not function.startswith("__"):
            self.changing.add(class_)
        elif isinstance(value, ast.Name) and function:
            self.changed.add(value.id)


def is_empty(value: ast.expr) -> bool:
    """Whether it makes a container without anything in it."""
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]) | ast.Call(args=[]):
            return True
    return False


@cache
def source(place: str) -> Source:
    found = Source()
    found.read(ast.parse(Path(place).read_text()))
    return found


def changes_itself(type_: type) -> bool:
    """Whether methods of this class of ours change its instances, once they are made."""
    ours = (one for one in type_.__mro__ if one.__module__.partition(".")[0] in PACKAGES)
    return any(one.__name__ in source(str(import_module(one.__module__).__file__)).changing for one in ours)


def kept(module: ModuleType) -> Iterator[str]:
    """The names of the module's own values that change while it runs."""
    found = source(str(module.__file__))
    for name in found.assigned & vars(module).keys():
        value = vars(module)[name]
        if isinstance(value, (*MANAGED, *BOUND_TO_OTHERS, *PURE, type)):
            continue
        is_changed = name in found.changed and isinstance(value, CONTAINERS)
        if name in found.replaced or is_changed or changes_itself(type(value)):
            yield name


def test_no_module_keeps_state_of_its_own() -> None:
    found = {f"{module.__name__}.{name}" for module in modules() for name in kept(module)}
    assert found == set().union(*OTHERS.values())


def test_a_module_that_keeps_state_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stateful.py").write_text(STATEFUL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tests.architecture.test_process_wide_values.PACKAGES", ("stateful",))
    assert set(kept(import_module("stateful"))) == {"cache", "last", "view", "replaced", "aliased"}


STATEFUL = """
from manciple.per_process import PerProcess

class View:
    def __init__(self):
        self.seen = []
    def read(self):
        self.seen.append(1)

class Constant:
    def __init__(self):
        self.seen = []

cache, managed, view, constant = {}, PerProcess(dict), View(), Constant()
last: list = []
replaced = None
aliased = dict()
TABLE = {"a": 1}

def ask(key):
    global replaced
    replaced = key
    last[:] = [key]
    managed.value[key] = TABLE[key]
    alias = aliased
    alias[key] = key
    return cache.setdefault(key, key)
"""


# Memos of functions ---------------------------------------------------------------------------------------------------


#: What a memoised function may not read, since its result would outlive a change of it.
CHANGEABLE = {"settings", "connection", "connections", "objects", "gates"}
MEMOS = {"cache", "lru_cache", "short_text_cache"}
#: Functions that read what never changes in a process: which database it has, how it keeps moments, and which columns.
CONSTANT = {"manciple.store.sql.on_postgresql", "manciple.store.sql._moment", "manciple.store.sql._types"}


def test_memoised_functions_are_pure() -> None:
    impure = {
        f"{module.__name__}.{name}"
        for module in modules()
        for name, used in source(str(module.__file__)).memoised.items()
        if used & CHANGEABLE
    }
    assert impure == CONSTANT


# Resetting ------------------------------------------------------------------------------------------------------------


def test_one_call_resets_every_value_and_ends_its_threads() -> None:
    ended: list[str] = []
    kept, unused = PerProcess(lambda: ["kept"], stop=ended.extend), PerProcess(list[str])
    before = kept.value
    assert (kept.value, kept.is_made, unused.is_made) == (before, True, False)
    reset_all()
    assert ended == ["kept"]
    assert not any(value.is_made for value in every())
    assert kept.value is not before


def test_a_forked_child_makes_its_own_and_leaves_the_parent_s_threads_alone() -> None:
    stopped: list[str] = []
    value = PerProcess(os.getpid, stop=lambda _pid: stopped.append("stopped"))
    parent = value.value
    child = os.fork()
    if not child:
        os._exit(0 if value.value == os.getpid() != parent and not stopped else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert value.value == parent


def test_a_value_that_takes_long_to_make_does_not_hold_up_another() -> None:
    other = PerProcess(lambda: "other")
    with ThreadPoolExecutor(1) as thread:
        value = PerProcess(lambda: thread.submit(lambda: other.value).result(30))
        assert value.value == "other"


def test_of_many_threads_that_want_a_value_one_makes_it() -> None:
    numbers, ready = count(), threading.Barrier(8)
    value = PerProcess(lambda: next(numbers))

    def use() -> int:
        ready.wait(30)
        return value.value

    with ThreadPoolExecutor(8) as threads:
        assert {future.result(30) for future in [threads.submit(use) for _ in range(8)]} == {0}
