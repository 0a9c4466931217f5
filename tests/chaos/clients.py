"""Those who work while everything goes wrong, each in a thread with chances of its own; they remember what they saw."""

from __future__ import annotations

import itertools
import json
import math
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec

from manciple.wire.base import ApiObject
from tests.builders import make_claim, make_pod, make_quota, make_request, make_taint_rule
from tests.chaos.linearizability import Operation, Outcome, Verb
from tests.e2e.api_client import PLACES, Document, connect

NAMESPACE = "chaos"
#: Seconds after which a request without an answer is given up.
PATIENCE = 15.0
#: Seconds after which an outage without a fault is a violation.
LASTING = 60.0
#: Certainly not done, and worth asking again.
COME_BACK = frozenset({429, 503})
#: What else each method may be answered.
ACCEPTABLE = {
    "GET": {200, 404, 410, 504},
    "POST": {201, 403, 404, 409, 504},
    "PUT": {200, 201, 404, 409, 504},
    "PATCH": {200, 404, 409, 504},
    "DELETE": {200, 404, 409, 504},
}
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
CLASSES = PLACES["DeviceClass"]


@dataclass
class Notes:
    """What all clients were told. Thread-safe as far as it is used: appended to, and counted up."""

    #: (method, status) -> answers; status 0: none
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: what nobody should have been told, in words
    wrong: list[str] = field(default_factory=list)
    #: path of an object -> what was asked of it
    histories: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))


class Client:
    """One kept connection, as the administrator."""

    def __init__(self, kubeconfig: Path, notes: Notes, server: str = "") -> None:
        self._http = connect(kubeconfig, server=server, timeout=PATIENCE)
        self._notes = notes

    def ask(
        self, method: str, path: str, body: Any = None, *, patch: str = "merge-patch", **params: str
    ) -> httpx.Response | None:
        """None where nobody answered, or the connection broke. patch: how the body of a PATCH is meant."""
        media = {"Content-Type": f"application/{patch}+json"} if method == "PATCH" else {}
        try:
            answer = self._http.request(method, path, json=body, params=params, headers=media)
        except httpx.TransportError:
            self._notes.answers[method, 0] += 1
            return None
        self._note(method, path, answer)
        return answer

    def _note(self, method: str, path: str, answer: httpx.Response) -> None:
        self._notes.answers[method, answer.status_code] += 1
        if answer.status_code not in ACCEPTABLE[method] | COME_BACK:
            self._notes.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:400]}")

    def surely(self, method: str, path: str, body: Any = None, *, fine: tuple[int, ...] = ()) -> Document:
        """Ask until it is done. fine: other answers that will do. Raises: AssertionError where it is not."""
        end = time.monotonic() + LASTING
        while time.monotonic() < end:
            answer = self.ask(method, path, body)
            if answer is not None and (answer.is_success or answer.status_code in fine):
                return dict(answer.json())
            time.sleep(0.3)
        told = "no answer" if answer is None else f"{answer.status_code} {answer.text[:400]}"
        raise AssertionError(f"{method} {path} was not done within {LASTING:.0f} s; last: {told}")

    def items(self, path: str) -> list[Document]:
        return list(self.surely("GET", path)["items"])

    def lines(self, path: str, **params: str) -> Iterator[str]:
        """Of a watch, until it ends or breaks. Raises: httpx.TransportError, httpx.HTTPStatusError."""
        with self._http.stream("GET", path, params={"watch": "true", **params}) as answer:
            if answer.is_error:
                answer.read()
                self._note("GET", f"watch of {path}", answer)
            answer.raise_for_status()
            yield from answer.iter_lines()


class Worker:
    """Does one thing after the other, in a thread, until it is told to stop."""

    def __init__(self, name: str, client: Client, seed: int) -> None:
        self.name = name
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.client = client
        self.chance = random.Random(f"{name} of {seed}")
        self.stopped = threading.Event()
        self.error = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns once it has, or its last request has no answer for too long."""
        self.stopped.set()
        self._thread.join(2 * PATIENCE)

    def _work(self) -> None:
        try:
            while not self.stopped.is_set():
                self.act()
        except Exception as error:
            self.error = f"{self.name}: {error!r}"

    def act(self) -> None:
        raise NotImplementedError

    def pause(self, longest: float) -> None:
        self.stopped.wait(self.chance.uniform(0, longest))


# Registers -----------------------------------------------------------------------------------------------------------


def _config_map(name: str, value: str) -> Document:
    return {"metadata": {"name": name}, "data": {"value": value}}


def _lease(name: str, value: str) -> Document:
    return {"metadata": {"name": name}, "spec": {"holderIdentity": value}}


def _class(name: str, value: str) -> Document:
    selectors = [{"cel": {"expression": "device.driver == 'nobody.example.com'"}}]
    return {"metadata": {"name": name, "annotations": {"value": value}}, "spec": {"selectors": selectors}}


#: place -> how an object is written there, and its value read
REGISTERS: dict[str, tuple[Callable[[str, str], Document], Callable[[Document], str]]] = {
    CONFIG_MAPS: (_config_map, lambda one: one["data"]["value"]),
    LEASES: (_lease, lambda one: one["spec"]["holderIdentity"]),
    CLASSES: (_class, lambda one: one["metadata"]["annotations"]["value"]),
}


class Registrar(Worker):
    """Creates, replaces, deletes and reads a few objects that nobody else writes; two of them make a history."""

    def __init__(self, name: str, client: Client, seed: int, notes: Notes) -> None:
        super().__init__(name, client, seed)
        self._notes = notes
        self._known: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def act(self) -> None:
        place = self.chance.choice(list(REGISTERS))
        name = f"register-{self.chance.randrange(2)}"
        verb = self.chance.choices(("read", "replace", "create", "delete"), (5, 5, 2, 1))[0]
        getattr(self, f"_{verb}")(place, name, f"{self.name}/{next(self._numbers)}")
        self.pause(0.15)

    def _create(self, place: str, name: str, value: str) -> None:
        self._do("create", "POST", place, name, body=REGISTERS[place][0](name, value), value=value)

    def _replace(self, place: str, name: str, value: str) -> None:
        expected = self._known.get(f"{place}/{name}", 1)
        body = REGISTERS[place][0](name, value)
        body["metadata"]["resourceVersion"] = str(expected)
        self._do("replace", "PUT", place, name, body=body, value=value, expected=expected)

    def _delete(self, place: str, name: str, _value: str) -> None:
        self._do("delete", "DELETE", place, name)

    def _read(self, place: str, name: str, _value: str) -> None:
        self._do("read", "GET", place, name)

    def _do(
        self, verb: Verb, method: str, place: str, name: str, *, body: Any = None, value: str = "", expected: int = 0
    ) -> None:
        key, began = f"{place}/{name}", time.monotonic()
        answer = self.client.ask(method, place if verb == "create" else key, body)
        outcome = _outcome(verb, answer)
        if outcome is None or (verb == "read" and outcome == "unknown"):
            return
        revision, ended = 0, math.inf if outcome == "unknown" else time.monotonic()
        if outcome == "ok" and verb != "delete" and answer is not None:
            document = answer.json()
            revision, value = int(document["metadata"]["resourceVersion"]), REGISTERS[place][1](document)
            self._known[key] = revision
        self._notes.histories[key].append(
            Operation(
                client=self.name,
                verb=verb,
                outcome=outcome,
                began=began,
                ended=ended,
                value=value,
                revision=revision,
                expected=expected,
                creates=place == LEASES,  # as in Kubernetes
            )
        )


def _outcome(verb: Verb, answer: httpx.Response | None) -> Outcome | None:
    """None where it certainly had none."""
    if answer is None or answer.status_code in (500, 504):
        return "unknown"
    if answer.is_success:
        return "ok"
    if answer.status_code == 404:
        return "refused" if verb == "replace" else "absent"
    return "refused" if answer.status_code == 409 else None


# Users and administrators --------------------------------------------------------------------------------------------


def document(obj: ApiObject) -> Document:
    return dict(msgspec.to_builtins(obj))


def place(kind: str, name: str = "") -> str:
    collection = PLACES[kind].format(namespace=NAMESPACE)
    return f"{collection}/{name}" if name else collection


class User(Worker):
    """Makes pods and claims, shares some, and deletes what it likes. wishes: templates, and classes of own claims."""

    def __init__(self, name: str, client: Client, seed: int, templates: list[str], classes: list[str]) -> None:
        super().__init__(name, client, seed)
        self._templates, self._classes = templates, classes
        self._numbers = itertools.count(1)
        self._mine: dict[str, list[str]] = {"Pod": [], "ResourceClaim": []}

    def act(self) -> None:
        acts = (self._pod_of_template, self._pod_of_claim, self._claim, self._delete_pod, self._delete_claim)
        self.chance.choices(acts, (5, 4, 2, 6, 2))[0]()
        self.pause(0.5)

    def _name(self, what: str) -> str:
        return f"{self.name}-{what}-{next(self._numbers)}"

    def _make(self, obj: ApiObject) -> None:
        self.client.ask("POST", place(obj.kind), document(obj))
        self._mine[obj.kind].append(obj.metadata.name)

    def _pod(self, **asked: Any) -> None:
        ends = {} if self.chance.random() < 0.5 else {"manciple.dev/run-seconds": f"{self.chance.uniform(0, 6):.1f}"}
        grace = self.chance.choice((0, 1, 2))
        self._make(
            make_pod(
                self._name("pod"),
                namespace=NAMESPACE,
                meta={"annotations": ends},
                termination_grace_period_seconds=grace,
                restart_policy=self.chance.choice(("Never", "Always")),
                **asked,
            )
        )

    def _pod_of_template(self) -> None:
        self._pod(templates={"device": self.chance.choice(self._templates)})

    def _pod_of_claim(self) -> None:
        """Several may take the same one."""
        if self._mine["ResourceClaim"]:
            self._pod(claims={"device": self.chance.choice(self._mine["ResourceClaim"])})

    def _claim(self) -> None:
        wanted = make_request(device_class=self.chance.choice(self._classes), count=self.chance.choice((1, 1, 2)))
        self._make(make_claim(self._name("claim"), namespace=NAMESPACE, requests=[wanted]))

    def _delete_pod(self) -> None:
        self._forget("Pod")

    def _delete_claim(self) -> None:
        self._forget("ResourceClaim")

    def _forget(self, kind: str) -> None:
        mine = self._mine[kind]
        if len(mine) > 3:
            self.client.ask("DELETE", place(kind, mine.pop(self.chance.randrange(len(mine)))))


class Administrator(Worker):
    """Taints devices, limits namespaces, cordons nodes and changes classes, each for a while."""

    def __init__(self, name: str, client: Client, seed: int, nodes: list[str], classes: list[str]) -> None:
        super().__init__(name, client, seed)
        self._nodes, self._classes = nodes, classes
        self._numbers = itertools.count(1)

    def act(self) -> None:
        self.chance.choice((self._taint, self._limit, self._cordon, self._change_a_class))()
        self.pause(1.0)

    def _for_a_while(self, obj: ApiObject) -> None:
        self.client.ask("POST", place(obj.kind), document(obj))
        self.pause(4.0)
        self.client.ask("DELETE", place(obj.kind, obj.metadata.name))

    def _taint(self) -> None:
        effect = self.chance.choice(("NoSchedule", "NoExecute"))
        device = f"gpu-{self.chance.randrange(8)}"
        name = f"{self.name}-rule-{next(self._numbers)}"
        self._for_a_while(make_taint_rule(name, effect=effect, pool=self.chance.choice(self._nodes), device=device))

    def _limit(self) -> None:
        hard = {"count/resourceclaims.resource.k8s.io": str(self.chance.randrange(60)), "pods": "100"}
        self._for_a_while(make_quota(hard, name=f"{self.name}-{next(self._numbers)}", namespace=NAMESPACE))

    def _cordon(self) -> None:
        node = place("Node", self.chance.choice(self._nodes))
        self.client.ask("PATCH", node, {"spec": {"unschedulable": True}})
        self.pause(3.0)
        self.client.ask("PATCH", node, {"spec": {"unschedulable": None}})

    def _change_a_class(self) -> None:
        named = place("DeviceClass", self.chance.choice(self._classes))
        self.client.ask("PATCH", named, {"metadata": {"annotations": {"changed": str(next(self._numbers))}}})


# Watchers ------------------------------------------------------------------------------------------------------------


class Watcher(Worker):
    """Lists a kind and follows it, as an informer does; looks at each state as it comes.

    seen: called with (what was, what is) of each object, {} for nothing, in the order of the events.
    """

    def __init__(
        self, kind: str, client: Client, seed: int, *, wrong: list[str], seen: Callable[[Document, Document], None]
    ) -> None:
        super().__init__(f"watcher of {kind}", client, seed)
        self.path = PLACES[kind].format(namespace=NAMESPACE)
        self._wrong, self._seen = wrong, seen
        self.state: dict[str, Document] = {}
        self.events = 0
        self._revision = 0
        #: name -> the newest revision that it was told of
        self._newest: dict[str, int] = {}

    def missed(self, found: Document) -> list[str]:
        """What it was not told of what a list has found, in words."""
        listed = {one["metadata"]["name"]: _revision(one) for one in found["items"]}
        changes = [f"{name} at {at}" for name, at in listed.items() if self._newest.get(name, 0) < at]
        known = {name: _revision(one) for name, one in list(self.state.items())}
        ends = [name for name, at in known.items() if name not in listed and at <= _revision(found)]
        return changes + [f"the end of {name}" for name in ends]

    def act(self) -> None:
        if self._revision or self._list():
            self._follow()
        self.stopped.wait(0.2)

    def _follow(self) -> None:
        expired = False
        with suppress(httpx.TransportError):
            try:
                params = {"resourceVersion": str(self._revision), "timeoutSeconds": "8", "allowWatchBookmarks": "true"}
                for line in self.client.lines(self.path, **params):
                    expired = self._take(json.loads(line))
                    if expired or self.stopped.is_set():
                        break
            except httpx.HTTPStatusError as error:
                expired = error.response.status_code == 410
        if expired:
            self._revision = 0

    def _list(self) -> bool:
        """Whether it was told what there is, and so where the watch begins."""
        answer = self.client.ask("GET", self.path)
        if answer is None or not answer.is_success:
            return False
        found = answer.json()
        listed = {one["metadata"]["name"]: one for one in found["items"]}
        self._newest |= {name: _revision(one) for name, one in listed.items()}
        for one in self.state.values():
            self._seen(one, {})
        for one in listed.values():
            self._seen({}, one)
        self.state, self._revision = listed, _revision(found)
        return True

    def _take(self, event: Document) -> bool:
        """Whether the watch has expired."""
        if event["type"] == "ERROR":
            return int(event["object"].get("code", 0)) == 410
        now = event["object"]
        revision = _revision(now)
        if revision < self._revision or (revision == self._revision and event["type"] != "BOOKMARK"):
            self._wrong.append(f"{self.name} was told of revision {revision} after {self._revision}")
        self._revision = revision
        if event["type"] == "BOOKMARK":
            return False
        self.events += 1
        name = now["metadata"]["name"]
        self._newest[name] = revision
        before = self.state.pop(name, {})
        if event["type"] == "DELETED":
            self._seen(before, {})
        else:
            self._seen(before, now)
            self.state[name] = now
        return False


def _revision(document: Document) -> int:
    """Of an object, or of a list."""
    return int(document["metadata"]["resourceVersion"])


class Holdings:
    """Which claim has which device, at every revision: none is ever given twice."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.most = 0
        self._holders: dict[tuple[str, str, str], str] = {}

    def seen(self, before: Document, now: Document) -> None:
        for device in _exclusive(before):
            if self._holders.get(device) == _key(before):
                del self._holders[device]
        for device in _exclusive(now):
            other = self._holders.get(device, "")
            if other:
                at = now["metadata"]["resourceVersion"]
                self.wrong.append(f"at revision {at} {'/'.join(device)} is given to {_key(now)} and {other}")
            self._holders[device] = _key(now)
        self.most = max(self.most, len(self._holders))


def _key(claim: Document) -> str:
    return f"{claim['metadata']['name']} {claim['metadata']['uid']}"


def _exclusive(claim: Document) -> list[tuple[str, str, str]]:
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [
        (one["driver"], one["pool"], one["device"])
        for one in results
        if not one.get("adminAccess") and not one.get("shareID")
    ]


class Stays:
    """Where pods are: none is ever on two nodes, or back from the dead."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.phases: Counter[str] = Counter()
        self._nodes: dict[str, str] = {}
        self._ended: dict[str, str] = {}

    def seen(self, _before: Document, now: Document) -> None:
        if not now:
            return
        uid, name = now["metadata"]["uid"], now["metadata"]["name"]
        node, phase = now["spec"].get("nodeName", ""), now.get("status", {}).get("phase", "")
        self.phases[phase] += 1
        if node != self._nodes.setdefault(uid, node):
            if self._nodes[uid]:
                self.wrong.append(f"pod {name} was on {self._nodes[uid]} and is on {node or 'no node'}")
            self._nodes[uid] = node
        if self._ended.get(uid, phase) != phase:
            self.wrong.append(f"pod {name} was {self._ended[uid]} and is {phase}")
        if phase in ("Succeeded", "Failed"):
            self._ended[uid] = phase


def counted(answers: Mapping[tuple[str, int], int]) -> str:
    return ", ".join(f"{method} {status or 'broken'}: {count}" for (method, status), count in sorted(answers.items()))
