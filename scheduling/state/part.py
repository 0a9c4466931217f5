"""A part of the scheduler's state (`scheduling.state.cluster.ClusterState`): three operations, the same for all. PURE.

part.put(obj)       an object was created or updated
part.remove(obj)    it was deleted
copy_of(part)       derived from the fields (`manciple.copying`)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(slots=True, eq=False, repr=False)
class Part(ABC):
    """What is kept of the objects of some resources. One thread at a time."""

    #: the resources
    follows: ClassVar[tuple[str, ...]]

    @abstractmethod
    def put(self, obj: Any) -> None:
        """Add an object, or replace the one of its name."""

    @abstractmethod
    def remove(self, obj: Any) -> None:
        """Remove an object. One that isn't there is no error: what is listed may have been deleted since."""
