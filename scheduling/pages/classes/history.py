"""What became of a class: its revisions in the event log, each with what it changed. Newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from inventory.kinds.devices import DeviceClass
from manciple.store import history
from manciple.store.history import Revised
from manciple.wire import codec
from scheduling.pages.classes.manifest import Line, difference, lines_changed, manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One revision. `before` is False where the log does not reach back to what it superseded."""

    revision: int
    at: datetime
    created: bool
    lines: tuple[Line, ...]
    before: bool = True

    @property
    def title(self) -> str:
        if self.created:
            return "Created"
        if not self.before:
            return "The oldest revision that the log still has"
        changed = lines_changed(self.lines)
        return (
            f"{changed} line{'' if changed == 1 else 's'} changed" if changed else "Nothing changed that people write"
        )


def versions(uid: str) -> tuple[Version, ...]:
    """Of a live class, as far as the log reaches back."""
    return told(history.of_object(uid))


def told(found: Sequence[Revised]) -> tuple[Version, ...]:
    """found: oldest first."""
    texts = [manifest(codec.decode_text(DeviceClass, one.text)) for one in found]
    made: list[Version] = []
    for index, (one, text) in enumerate(zip(found, texts, strict=True)):
        created = one.type == "ADDED"
        known = created or index > 0
        lines = difference("" if created else texts[index - 1], text) if known else ()
        made.append(Version(revision=one.revision, at=one.at, created=created, lines=lines, before=known))
    return tuple(reversed(made))
