"""Clients of an installation of two versions, which work with it all the time and forgive nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from manciple.processes.accounts import ADMIN
from tests.builders import make_pod
from tests.chaos.clients import NAMESPACE, Client, Holdings, Notes, Stays, Watcher, Worker, document, place
from tests.e2e.api_client import Document, submit_form
from tests.e2e.processes import PATIENCE, wait_for
from tests.e2e.two_versions import TEMPLATE, Door, Mixed

#: A pod that nobody can place: both versions tell why, whichever wrote it down.
TOO_LARGE = "too-large"
PAGES = ("overview", "pods", f"pods/{NAMESPACE}/{TOO_LARGE}", "claims", "devices", "nodes", "people", "account")


class Guest(Client):
    """One who is told the truth, and an answer to everything, unless the process behind the door is being replaced."""

    def __init__(self, kubeconfig: Path, notes: Notes, door: Door) -> None:
        super().__init__(kubeconfig, notes, door.server)
        self._http.timeout = httpx.Timeout(PATIENCE)
        self._door = door

    def ask(self, method: str, path: str, body: object = None, **params: str) -> httpx.Response | None:
        answer = super().ask(method, path, body, **params)
        if answer is None and not self._door.changing:
            self._notes.wrong.append(f"{method} {self._door.server}{path}: no answer")
        return answer

    def _note(self, method: str, path: str, answer: httpx.Response) -> None:
        super()._note(method, path, answer)
        if answer.is_server_error and not self._door.changing:
            told = f"{answer.status_code} {answer.text[:400]}"
            self._notes.wrong.append(f"{method} {self._door.server}{path}: {told}")


class Tenant(Worker):
    """Makes pods that ask for a device each, one after the other: each gets it, runs, and is deleted."""

    def __init__(self, name: str, client: Client) -> None:
        super().__init__(name, client, seed=0)
        self._numbers = itertools.count(1)
        self.served = 0

    def act(self) -> None:
        pod = f"{self.name}-{next(self._numbers)}"
        run(self.client, pod)
        self.client.surely("DELETE", place("Pod", pod), fine=(404,))
        self.served += 1
        self.pause(0.2)


def run(client: Client, pod: str) -> Document:
    """Create it; once it runs, what must not change while it does."""
    asking = make_pod(pod, namespace=NAMESPACE, templates={"device": TEMPLATE}, termination_grace_period_seconds=0)
    client.surely("POST", place("Pod"), document(asking), fine=(409,))
    return wait_for(f"{pod} to run", partial(running, client, pod))


def running(client: Client, name: str) -> Document:
    """{} where it does not."""
    answer = client.ask("GET", place("Pod", name))
    pod = answer.json() if answer is not None and answer.is_success else {}
    status = pod.get("status", {})
    if status.get("phase") != "Running":
        return {}
    (claimed,) = status["resourceClaimStatuses"]
    claim = client.surely("GET", place("ResourceClaim", claimed["resourceClaimName"]))
    devices = claim["status"]["allocation"]["devices"]["results"]
    assert len(devices) == 1, f"{name} runs and has {devices}"
    containers = [one["state"] for one in status["containerStatuses"]]
    return {"node": pod["spec"]["nodeName"], "containers": containers, "devices": devices}


VERSIONS, PASSWORD = 2, "correct horse battery"


class Reader(Worker):
    """A person who has signed in at one process, and reads pages of each.

    The earlier version stores sessions under their keys, this one under digests: migrating ends them. So this person
    signs in again once with each version, and both sessions last from then on.
    """

    def __init__(self, of: Mixed, client: Client, notes: Notes) -> None:
        super().__init__("reader", client, seed=0)
        self._http = httpx.Client(timeout=PATIENCE)
        self._doors, self._notes = list(of.doors.values()), notes
        self.read = self.signed_in_again = 0
        _set_password(self._http, self._doors[0], of.first_link)

    def act(self) -> None:
        for page, door in itertools.product(PAGES, self._doors):
            try:
                answer = self._http.get(f"http://{door.web}/{page}")
                if answer.status_code == httpx.codes.FOUND and self.signed_in_again < VERSIONS:
                    self.signed_in_again += 1
                    _sign_in(self._http, door)
                    answer = self._http.get(f"http://{door.web}/{page}")
            except httpx.TransportError as error:
                told = repr(error)
            else:
                told = "" if answer.status_code == httpx.codes.OK else str(answer)
            if told and not door.changing:
                self._notes.wrong.append(f"/{page} of {door.web}: {told}")
            self.pause(0.2)
        self.read += 1


def _set_password(http: httpx.Client, door: Door, link: str) -> None:
    """Which signs in as well."""
    password = dict.fromkeys(("new_password1", "new_password2"), PASSWORD)
    submit_form(http, f"http://{door.web}{urlsplit(link).path}", password)


def _sign_in(http: httpx.Client, door: Door) -> None:
    submit_form(http, f"http://{door.web}/login", {"username": ADMIN, "password": PASSWORD})


class Traffic:
    """A tenant at each API process, watches of pods at each and of claims behind the balancer, a reader of pages."""

    def __init__(self, of: Mixed) -> None:
        self._of, self._notes = of, Notes()
        self._holdings, self._stays = Holdings(), {name: Stays() for name in of.doors}
        self.tenants = [Tenant(f"tenant-of-{name}", self._guest(door)) for name, door in of.doors.items()]
        self._watchers = list(self._made_watchers())
        self._reader = Reader(of, self._guest(of.balancer), self._notes)
        self._workers = (*self.tenants, *self._watchers, self._reader)

    def _guest(self, door: Door) -> Guest:
        return Guest(self._of.kubeconfig, self._notes, door)

    def _made_watchers(self) -> Iterator[Watcher]:
        wrong, doors = self._notes.wrong, self._of.doors
        claims = self._guest(self._of.balancer)
        yield Watcher("ResourceClaim", claims, 0, wrong=wrong, seen=self._holdings.seen)
        for name, door in doors.items():
            yield Watcher("Pod", self._guest(door), 0, wrong=wrong, seen=self._stays[name].seen)

    def begin(self) -> None:
        for worker in self._workers:
            worker.start()

    def goes_on(self, while_: str, *, pods: int = 2) -> None:
        """Each tenant gets so many pods more. Raises: AssertionError at the first thing that is wrong."""
        wanted = {tenant.name: tenant.served + pods for tenant in self.tenants}

        def have_got() -> bool:
            assert not self.wrong(), f"{while_}: {self.wrong()}"
            return all(tenant.served >= wanted[tenant.name] for tenant in self.tenants)

        wait_for(f"each tenant to get {pods} pods more: {while_}", have_got)

    def end(self) -> None:
        """Raises: AssertionError where something went wrong on the way, or a watch has not told everything."""
        for worker in (*self.tenants, self._reader):
            worker.stop()
        client = self._guest(self._of.balancer)
        for watcher in self._watchers:
            found = client.surely("GET", watcher.path)
            wait_for(f"the {watcher.name} to tell all", partial(_tells_all, watcher, found))
        for watcher in self._watchers:
            watcher.stopped.set()
        assert self.wrong() == []
        assert all(watcher.events for watcher in self._watchers)
        assert self._holdings.most > len(self.tenants)
        assert self._reader.read > 1

    def wrong(self) -> Sequence[str]:
        errors = [worker.error for worker in self._workers if worker.error]
        seen = [line for stays in self._stays.values() for line in stays.wrong]
        return [*errors, *self._notes.wrong, *self._holdings.wrong, *seen]


def _tells_all(watcher: Watcher, found: Document) -> bool:
    return not watcher.missed(found)
