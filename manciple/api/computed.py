"""Kinds that are worked out when somebody reads them, and never stored: metrics of nodes and pods.

Those above the API register theirs from `AppConfig.ready()`. Discovery lists them with the verbs get and list; `views`
answers them in every form of stored objects, Tables among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from manciple.api.requests import ListOptions
from manciple.store.records import Page, Stored
from manciple.wire.registry import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedKind:
    """of: the stored kind with whose names, labels and fields it is selected. All raise ApiErrors.

    get: (namespace, name) -> the object. list: (namespace, options) -> one page.
    """

    kind: Kind
    of: Kind
    get: Callable[[str, str], Stored]
    list: Callable[[str, ListOptions], Page]


#: (group, version, plural) -> what is served there
COMPUTED: dict[tuple[str, str, str], ComputedKind] = {}


def register(computed: ComputedKind) -> None:
    kind = computed.kind
    COMPUTED[kind.group, kind.version, kind.plural] = computed
