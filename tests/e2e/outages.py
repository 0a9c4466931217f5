"""Compares what every page says with the state that a test has brought about by killing a part of the system.

`Pages` reads them as the administrator; a `Case` has, for each page, what it must say and what it must not.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from tests.e2e.api_client import submit_form
from tests.e2e.processes import PATIENCE, wait_for

#: page -> (patterns that it must have, patterns that it must not have)
Case = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
NOTHING: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A pod that runs with the only device that is held. devices: of its node, in one pool of one driver."""

    namespace: str
    pod: str
    claim: str
    node: str
    driver: str
    pool: str
    device: str
    devices: int

    @property
    def device_page(self) -> str:
        return f"devices/d/{self.driver}/{self.pool}/{self.device}"

    @property
    def pod_page(self) -> str:
        return f"pods/{self.namespace}/{self.pod}"

    @property
    def claim_page(self) -> str:
        return f"claims/{self.namespace}/{self.claim}"


def well(of: Subject) -> Case:
    """All parts run."""
    gone = ("[Uu]nreachable", "[Uu]npublished")
    return {
        "overview": ((r"Free \d+", r"Node agents each reported", "every pool is complete", r"\b0 open"), gone),
        "nodes": ((rf"{of.node} .*?Ready fresh",), gone[1:]),
        f"nodes/{of.node}": (("Ready lease fresh", f"{of.pod} Running"), ("is unreachable", "incomplete")),
        of.device_page: (("Reserved ·",), ("its node is unreachable",)),
        "devices": ((of.node,), ("node is unreachable", "slices of")),
        of.claim_page: (("Running",), ("Stuck", "unreachable")),
        "claims": ((of.claim,), ("is unreachable",)),
        "pods": ((rf"{of.pod} {of.namespace} Running",), ("Unreachable",)),
        of.pod_page: (("Running",), ("Unreachable",)),
        "drivers": ((of.driver,), ("unreachable", "unpublished")),
        f"drivers/{of.driver}": ((of.driver,), ("unreachable", "no longer published", "incomplete;")),
        "incidents": (("Open 0",), NOTHING),
        "wallboard": (("Open incidents 0",), ("is unreachable",)),
        "namespaces": (("1 running",), ("unreachable",)),
        f"namespaces/{of.namespace}": (("1 running",), ("Unreachable",)),
    }


def node_lost(of: Subject) -> Case:
    """Nothing has been heard of the node for longer than the grace period."""
    return {
        "overview": (
            (
                rf"Node {of.node} is unreachable",
                rf"Unreachable {of.devices} on 1 node",
                "1 open",
                f"{of.driver} some pools are out of reach",
            ),
            ("no device is out of service", "agents each reported", f"{of.driver} every pool is complete"),
        ),
        "nodes": ((rf"{of.node} .*?Unreachable last heard from", rf"\b{of.devices} unreachable"), NOTHING),
        f"nodes/{of.node}": (
            (f"{of.node} is unreachable", f"{of.pod} Unreachable", "NodeNotReady", "NodeStatusUnknown|stopped posting"),
            ("fresh", f"{of.pod} Running"),
        ),
        of.device_page: (("Unreachable", "its node is unreachable"), ("Health Healthy", "Reserved ·")),
        "devices": ((f"Unreachable {of.devices}", "The node is unreachable"), NOTHING),
        of.claim_page: ((f"on node {of.node}, which is unreachable", "Its node is unreachable"), ("Running\\.",)),
        "claims": ((f"Node {of.node} is unreachable",), NOTHING),
        "pods": ((rf"{of.pod} {of.namespace} Unreachable",), (rf"{of.pod} {of.namespace} Running",)),
        of.pod_page: (
            (f"Node {of.node} is unreachable", "Ready False", "when the node was last heard from"),
            (f"{of.pod} Running", "Healthy"),
        ),
        "drivers": ((rf"{of.driver} .*?{of.devices} unreachable",), NOTHING),
        f"drivers/{of.driver}": (("unreachable; its devices are not free",), NOTHING),
        "incidents": ((f"Node {of.node}", "Open 1", "its agent does not report", of.pod), NOTHING),
        "timeline": (("Unreachable since",), NOTHING),
        "wallboard": ((f"Node {of.node} unreachable", "Open incidents 1"), ("All is well",)),
        "namespaces": (("1 unreachable",), ("1 running",)),
        f"namespaces/{of.namespace}": (("Unreachable 1",), ("1 running",)),
        "events": ((f"Node {of.node} status is now: NodeNotReady", "Node is not ready"), NOTHING),
    }


def driver_lost(of: Subject) -> Case:
    """The driver's grace period is over: its slices are gone, and the pod runs on with its device."""
    return {
        "overview": (
            ("Unpublished 1", "1 open", f"Driver {of.driver} some pools are gone"),
            ("all healthy", "no device is out of service", "[Uu]nreachable"),
        ),
        of.device_page: (("Unpublished",), ("Reserved ·",)),
        "devices": (("Unpublished 1",), NOTHING),
        of.pod_page: ((f"{of.pod} Running",), ("[Uu]nreachable",)),
        of.claim_page: (("Unpublished",), NOTHING),
        "drivers": ((rf"{of.driver} .*?1 unpublished",), NOTHING),
        f"drivers/{of.driver}": (("no longer published",), NOTHING),
        "incidents": ((f"Pool {of.pool} of {of.driver}", "Open 1", "no slice is published"), NOTHING),
        "timeline": (("Unpublished since",), NOTHING),
        "wallboard": ((f"Pool {of.pool} of {of.driver} incomplete", "Open incidents 1"), ("All is well",)),
        f"nodes/{of.node}": (("Ready lease fresh", f"{of.pod} Running"), ("is unreachable",)),
    }


def no_worker(of: Subject) -> Case:
    """Nothing is placed, and the nodes, devices and pods are as they were."""
    kept = {page: said for page, said in well(of).items() if page not in {"overview", "wallboard"}}
    broken = ("No worker has run", r"Free \d+", "Node agents each reported", "every pool is complete")
    return {**kept, "overview": (broken, ("[Uu]nreachable",)), "wallboard": (("Scheduler",), ("All is well",))}


def no_redis(of: Subject) -> Case:
    """All goes on, a second later than usual; the overview says so."""
    overview = (("Redis does not answer", r"Free \d+", "Node agents each reported"), ("[Uu]nreachable",))
    return {**well(of), "overview": overview, "wallboard": (("Redis",), ("All is well", "is unreachable"))}


class Pages:
    """What they say. first_link: with which the administrator chooses a password."""

    def __init__(self, web: str, first_link: str) -> None:
        self._http = httpx.Client(base_url=web, timeout=60.0)
        password = dict.fromkeys(("new_password1", "new_password2"), "correct horse battery")
        submit_form(self._http, f"{web}{urlsplit(first_link).path}", password)

    def words(self, page: str) -> str:
        answer = self._http.get(f"/{page}")
        main = answer.text.partition("<main")[2].partition("</main>")[0].partition(">")[2]
        return f"{answer.status_code} " * (answer.status_code != httpx.codes.OK) + html.unescape(
            re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", main))
        )

    def answer(self) -> bool:
        """Whether there is any page at all."""
        try:
            return self._http.get("/overview").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def wrong(self, case: Case) -> list[str]:
        """What the pages say that is not so, and what they do not say that is."""
        return [said for page, expected in case.items() for said in self._wrong(page, *expected)]

    def _wrong(self, page: str, says: tuple[str, ...], silent: tuple[str, ...]) -> Iterator[str]:
        text = self.words(page)
        for pattern in says:
            if not re.search(pattern, text):
                yield f"/{page} does not say {pattern!r}: {text[:1500]}"
        for pattern in silent:
            if found := re.search(pattern, text):
                yield f"/{page} says {found.group()!r}: …{text[max(0, found.start() - 100) : found.end() + 100]}…"

    def agree(self, what: str, case: Case, *, within: float = PATIENCE, looks: int = 1, every: float = 0.0) -> None:
        """All pages do so within that many seconds, and then each time that they are looked at."""
        wrong: list[str] = []

        def agreed() -> bool:
            wrong[:] = self.wrong(case)
            return not wrong

        try:
            wait_for(f"the pages to say that {what}", agreed, timeout=within)
        except AssertionError as late:
            raise AssertionError(f"{late}\n" + "\n".join(wrong)) from None
        for look in range(1, looks):
            at = time.monotonic() + every
            wait_for("the next look", lambda at=at: time.monotonic() >= at, timeout=every + PATIENCE)  # type: ignore[misc]  # bound now
            wrong = self.wrong(case)
            assert not wrong, f"look {look} while {what}:\n" + "\n".join(wrong)
