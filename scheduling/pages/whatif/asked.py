"""What a rehearsal is asked: about what, with which changes, how often, with how many more nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlencode

from scheduling.pages.classes.diagnostics import Finding
from scheduling.pages.whatif.query import as_query
from scheduling.simulation import Question
from scheduling.simulation_workload import Changes, Workload, stored_claim, stored_pod, stored_template

#: What an address names -> how it is read.
SUBJECTS = {"pod": stored_pod, "claim": stored_claim, "template": stored_template}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked. `workload` is None where it cannot be rehearsed: `findings` or `error` say why."""

    about: str = ""  # "pod", "claim", "template", "text" or ""
    name: str = ""
    text: str = ""
    workload: Workload | None = None
    changes: Changes = field(default_factory=Changes)
    replicas: int = 1
    shape: str = ""
    nodes: int = 0
    error: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def question(self) -> Question:
        assert self.workload is not None  # noqa: S101 - asked only where there is one
        return Question(
            workload=self.workload,
            changes=self.changes,
            replicas=self.replicas,
            shape=self.shape,
            more_nodes=self.nodes if self.shape else 0,
        )

    def url(self, **changes: str) -> str:
        """The address of the same question; of pasted text without it."""
        pairs = [(self.about, self.name)] if self.about in SUBJECTS else []
        pairs += [("replicas", str(self.replicas)), ("shape", self.shape), ("nodes", str(self.nodes or ""))]
        pairs += as_query(self.changes)
        found = {**dict(pairs), **changes}
        kept = [(name, found[name]) for name in dict.fromkeys([*(name for name, _ in pairs), *changes])]
        many = [(name, value) for name, value in pairs if name in ("without", "tolerate")]
        single = [(name, value) for name, value in kept if name not in ("without", "tolerate") and value]
        return f"/what-if?{urlencode([*single, *many], safe='/:')}"
