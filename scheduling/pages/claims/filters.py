"""Which claims the list shows, in which order: what stands in its address. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from scheduling.pages.claims.reading import ClaimLine
from scheduling.pages.claims.states import STATES, URGENCY

#: Claims on one page.
PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFilter:
    """What a person asks for."""

    state: str = ""
    namespace: str = ""
    device_class: str = ""
    text: str = ""
    page: int = 1
    at: str = ""  # namespace/name of the claim whose sheet is open

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> ClaimFilter:
        """What is not understood is left out: an address never fails."""
        state, page = query.get("state", ""), query.get("page", "")
        return cls(
            state=state if state in STATES else "",
            namespace=query.get("ns", "").strip(),
            device_class=query.get("class", "").strip(),
            text=query.get("q", "").strip(),
            page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 8 else 1,  # noqa: PLR2004
            at=query.get("at", ""),
        )

    def url(self, **changes: str | int) -> str:
        """The address of the list with some of it changed; a change of what is listed begins at page 1."""
        parts: dict[str, str | int] = {
            "state": self.state, "ns": self.namespace, "class": self.device_class, "q": self.text, "page": self.page,
            "at": self.at,
        }  # fmt: skip
        if set(changes) - {"at", "page"}:
            parts["page"] = 1
        parts |= changes
        kept = {name: value for name, value in parts.items() if value and (name, value) != ("page", 1)}
        return f"/claims?{urlencode(kept)}" if kept else "/claims"

    @property
    def narrows(self) -> bool:
        return bool(self.namespace or self.device_class or self.text)

    def matches(self, line: ClaimLine) -> bool:
        """Whether the claim is one of those asked for, whatever its state."""
        if self.namespace and line.namespace != self.namespace:
            return False
        if self.device_class and self.device_class not in line.classes:
            return False
        if not self.text:
            return True
        wanted = self.text.casefold()
        return any(wanted in name.casefold() for name in (line.key, *line.pods, *line.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One page of the list."""

    lines: Sequence[ClaimLine]
    counts: Mapping[str, int]  # state -> claims that the filter lets through, "" for all
    total: int  # in the chosen state
    first: int  # number of the first line, from 1
    pages: int
    page: int

    @property
    def in_any_state(self) -> int:
        return self.counts[""]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


def listed(claims: Iterable[ClaimLine], wanted: ClaimFilter) -> Listed:
    """Stuck first, then what waits longest; what is in use, the newest first."""
    matching = [line for line in claims if wanted.matches(line)]
    counts = Counter(line.state for line in matching)
    chosen = sorted((line for line in matching if wanted.state in ("", line.state)), key=_order)
    pages = max(1, -(-len(chosen) // PAGE))
    page = min(wanted.page, pages)
    begin = (page - 1) * PAGE
    return Listed(
        lines=chosen[begin : begin + PAGE],
        counts={"": len(matching)} | {state: counts[state] for state in STATES},
        total=len(chosen),
        first=begin + 1,
        pages=pages,
        page=page,
    )


def _order(line: ClaimLine) -> tuple[int, float, str]:
    seconds = line.created_at.timestamp()
    return URGENCY[line.state], -seconds if line.state == "allocated" else seconds, line.key
