"""People who do anything the API accepts, and much that it does not, in namespaces with limits.

Tenants make pods and claims of every form, change, resize, share, evict and delete them, by force too, and write what
they read long ago. An administrator changes quotas, classes, taints and nodes meanwhile. What they are answered is not
looked at, as long as it is an answer: what comes of it is the oracle's business.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.clients import Client, Notes, Worker
from tests.chaos.imitated import ALLOCATABLE, DRIVERS, EXCLUSIVE, EXTENDED, NODES, PARTS, PLUGIN, SHARES
from tests.chaos.oracle import Reader
from tests.e2e.api_client import PLACES, Document, Hands

#: The last is open to admin access.
NAMESPACES = ("limits-a", "limits-b", "limits-admin")
ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}
TEMPLATES = ("one-gpu", "a-half", "a-share")
#: What nobody may be answered.
FAULTS = frozenset({500, 501, 502})
#: Objects of one tenant, at most: beyond that one goes for each that comes.
MOST = 25
DEVICES = ".deviceclass.resource.k8s.io/devices"


class RoughClient(Client):
    """Whatever it asks, any refusal will do; it may act in the name of a tenant."""

    def __init__(self, kubeconfig: Path, notes: Notes, server: str = "", *, tenant: str = "") -> None:
        super().__init__(kubeconfig, notes, server)
        if tenant:
            self._http.headers.update({"Impersonate-User": tenant, "Impersonate-Group": "system:authenticated"})

    def _note(self, method: str, path: str, answer: httpx.Response) -> None:
        self._notes.answers[method, answer.status_code] += 1
        if answer.status_code in FAULTS:
            self._notes.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:400]}")

    def document(self, path: str, params: Any) -> Document | None:
        """What a `Reader` asks by."""
        answer = self.ask("GET", path, **params)
        return answer.json() if answer is not None and answer.is_success else None


def reader_of(kubeconfig: Path, notes: Notes, server: str) -> Reader:
    return Reader(RoughClient(kubeconfig, notes, server).document)


# What there is --------------------------------------------------------------------------------------------------------


def class_of(driver: str) -> Document:
    spec: Document = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    if driver == EXCLUSIVE:
        spec["extendedResourceName"] = EXTENDED
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": spec,
    }


def furnish(api: Hands) -> None:
    """Namespaces, the rights of their tenants, classes and templates."""
    api.apply(*map(class_of, DRIVERS))
    for namespace in NAMESPACES:
        labels = ADMIN_ACCESS if namespace == NAMESPACES[-1] else {}
        meta = {"name": namespace, "labels": labels}
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        binding = {
            "metadata": {"name": "tenants"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"tenant-{namespace}"}],
        }
        api.made(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
        for name, wanted in zip(TEMPLATES, (EXCLUSIVE, PARTS, SHARES), strict=True):
            requests = [{"name": "device", "exactly": {"deviceClassName": wanted}}]
            api.made(
                PLACES["ResourceClaimTemplate"].format(namespace=namespace),
                {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": requests}}}},
            )


class Tenant(Worker):
    """Of one namespace."""

    def __init__(self, name: str, namespace: str, client: Client, seed: int) -> None:
        super().__init__(name, client, seed)
        self._namespace = namespace
        self._numbers = itertools.count(1)
        self._mine: dict[str, list[str]] = {"Pod": [], "ResourceClaim": []}
        #: documents as they were once read
        self._read: list[tuple[str, Document]] = []

    def act(self) -> None:
        acts: dict[Callable[[], None], int] = {
            self._make_pod: 10,
            self._make_claim: 5,
            self._delete: 4,
            self._resize: 2,
            self._patch: 2,
            self._read_one: 3,
            self._write_what_was_read: 2,
            self._evict: 1,
            self._status: 1,
        }
        self.chance.choices(list(acts), list(acts.values()))[0]()
        if sum(map(len, self._mine.values())) > MOST:
            self._delete()
        self.pause(0.6)

    def _place(self, kind: str, name: str = "") -> str:
        collection = PLACES[kind].format(namespace=self._namespace)
        return f"{collection}/{name}" if name else collection

    def _name(self, what: str) -> str:
        return f"{self.name}-{what}-{next(self._numbers)}"

    def _some(self, kind: str) -> str:
        """A name of the tenant's own; of none where there is none."""
        return self.chance.choice(self._mine[kind] or ["nothing"])

    # Making ----------------------------------------------------------------------------------------------------------

    def _make(self, kind: str, document: Document) -> None:
        dry = {"dryRun": "All"} if self.chance.random() < 0.1 else {}
        answer = self.client.ask("POST", self._place(kind), document, **dry)
        if not dry and (answer is None or answer.is_success):
            self._mine[kind].append(document["metadata"]["name"])

    def _make_claim(self) -> None:
        self._make("ResourceClaim", {"metadata": {"name": self._name("claim")}, "spec": {"devices": self._devices()}})

    def _devices(self) -> Document:
        """What a claim asks for."""
        requests = [self._request(f"r{number}") for number in range(self.chance.choice((1, 1, 1, 2, 3)))]
        found: Document = {"requests": requests}
        if self.chance.random() < 0.2:
            found["constraints"] = [{"matchAttribute": "exclusive.storm.example.com/numa"}]
        return found

    def _request(self, name: str) -> Document:
        if self.chance.random() < 0.2:
            wanted = [{"name": f"choice-{number}", **self._exactly()} for number in range(2)]
            for one in wanted:
                one.pop("adminAccess", None)
            return {"name": name, "firstAvailable": wanted}
        return {"name": name, "exactly": self._exactly()}

    def _exactly(self) -> Document:
        driver = self.chance.choice(DRIVERS)
        found: Document = {"deviceClassName": driver}
        kind = self.chance.random()
        if kind < 0.1:
            found["allocationMode"] = "All"
        elif kind < 0.3:
            found |= {"allocationMode": "ExactCount", "count": self.chance.choice((1, 2, 3))}
        if driver == SHARES and self.chance.random() < 0.7:
            found["capacity"] = {"requests": {"memory": f"{self.chance.choice((1, 5, 10, 25, 39))}Gi"}}
        if driver == PARTS and self.chance.random() < 0.5:
            size = self.chance.choice((1, 2, 4))
            found["selectors"] = [{"cel": {"expression": f"device.attributes['{PARTS}'].size == {size}"}}]
        if self.chance.random() < (0.3 if self._namespace == NAMESPACES[-1] else 0.05):
            found["adminAccess"] = True
        if self.chance.random() < 0.2:
            found["tolerations"] = [{"operator": "Exists"}]
        return found

    def _make_pod(self) -> None:
        spec: Document = {"containers": [self._container(number) for number in range(self.chance.choice((1, 1, 2)))]}
        spec |= self.chance.choice(
            (
                {"nodeSelector": {"storm.example.com/imitated": "true"}},
                {"nodeSelector": {"kubernetes.io/hostname": self.chance.choice(NODES)}},
                {},
            )
        )
        if self.chance.random() < 0.3:
            spec["initContainers"] = [{**self._container(9), "restartPolicy": self.chance.choice(("Always", None))}]
            spec["initContainers"][0] = {key: one for key, one in spec["initContainers"][0].items() if one}
        if self.chance.random() < 0.25:
            spec["resources"] = {"requests": {"cpu": "3", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "3Gi"}}
        if self.chance.random() < 0.2:
            spec["activeDeadlineSeconds"] = 600
        spec["terminationGracePeriodSeconds"] = self.chance.choice((0, 1, 5))
        if self.chance.random() < 0.7:
            spec["resourceClaims"] = self._claims()
            uses = [{"name": one["name"]} for one in spec["resourceClaims"]]
            spec["containers"][0].setdefault("resources", {})["claims"] = uses
        if self.chance.random() < 0.1:
            spec["tolerations"] = [{"operator": "Exists"}]
        self._make("Pod", {"metadata": {"name": self._name("pod")}, "spec": spec})

    def _container(self, number: int) -> Document:
        resources: Document = {}
        if self.chance.random() < 0.7:
            resources["requests"] = {"cpu": self.chance.choice(("100m", "1", "2500m")), "memory": "1Gi"}
        extended = {}
        if self.chance.random() < 0.2:
            extended[EXTENDED] = str(self.chance.choice((1, 2)))
        if self.chance.random() < 0.15:
            extended[PLUGIN] = "1"
        if self.chance.random() < 0.05:
            extended[f"deviceclass.resource.kubernetes.io/{EXCLUSIVE}"] = "1"
        if extended:
            resources["limits"] = extended
        return {"name": f"c{number}", "image": "registry.example/storm", "resources": resources}

    def _claims(self) -> list[Document]:
        count = self.chance.choice((1, 1, 2))
        return [
            {"name": f"d{number}", "resourceClaimTemplateName": self.chance.choice(TEMPLATES)}
            if self.chance.random() < 0.5
            else {"name": f"d{number}", "resourceClaimName": self._some("ResourceClaim")}
            for number in range(count)
        ]

    # Changing --------------------------------------------------------------------------------------------------------

    def _delete(self) -> None:
        kind = self.chance.choice(list(self._mine))
        mine = self._mine[kind]
        if mine:
            name = mine.pop(self.chance.randrange(len(mine)))
            force = {"gracePeriodSeconds": "0"} if self.chance.random() < 0.3 else {}
            self.client.ask("DELETE", self._place(kind, name), **force)

    def _resize(self) -> None:
        wanted = {"cpu": self.chance.choice(("50m", "1", "4", "-1", "100")), "memory": "1Gi"}
        containers = [{"name": "c0", "resources": {"requests": wanted}}]
        path = f"{self._place('Pod', self._some('Pod'))}/resize"
        self.client.ask("PATCH", path, {"spec": {"containers": containers}}, patch="strategic-merge-patch")

    def _patch(self) -> None:
        kind = self.chance.choice(list(self._mine))
        changes: tuple[Document, ...] = (
            {"metadata": {"annotations": {"changed": self._name("time")}}},
            {"metadata": {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}},
            {"metadata": {"finalizers": None}},
            {"spec": {"activeDeadlineSeconds": 30}},
        )
        self.client.ask("PATCH", self._place(kind, self._some(kind)), self.chance.choice(changes))

    def _read_one(self) -> None:
        kind = self.chance.choice(list(self._mine))
        path = self._place(kind, self._some(kind))
        answer = self.client.ask("GET", path)
        if answer is not None and answer.is_success:
            self._read = [*self._read[-9:], (path, answer.json())]

    def _write_what_was_read(self) -> None:
        """Write an object that was read earlier, sometimes without its resourceVersion, or create it again."""
        if self._read:
            path, document = self.chance.choice(self._read)
            how = self.chance.choice(("stale", "unconditional", "again"))
            meta = dict(document["metadata"])
            if how != "stale":
                meta.pop("resourceVersion", None)
            if how == "again":
                meta.pop("uid", None)
                self.client.ask("POST", path.rpartition("/")[0], {**document, "metadata": meta})
            else:
                self.client.ask("PUT", path, {**document, "metadata": meta})

    def _evict(self) -> None:
        name = self._some("Pod")
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": self._namespace}}
        self.client.ask("POST", f"{self._place('Pod', name)}/eviction", body)

    def _status(self) -> None:
        """What no tenant may write."""
        path = f"{self._place('ResourceClaim', self._some('ResourceClaim'))}/status"
        self.client.ask("PATCH", path, {"status": {"allocation": None, "reservedFor": None}})


class Operator(Worker):
    """The administrator: limits, classes, taints, nodes; and pods that are bound by hand."""

    def __init__(self, name: str, client: Client, seed: int) -> None:
        super().__init__(name, client, seed)
        self._numbers = itertools.count(1)

    def act(self) -> None:
        acts: dict[Callable[[], None], int] = {
            self._limit: 6,
            self._lift: 2,
            self._change_a_class: 2,
            self._taint: 3,
            self._cordon: 2,
            self._lose_a_node: 1,
            self._out_of_service: 1,
            self._shrink_a_node: 1,
        }
        self.chance.choices(list(acts), list(acts.values()))[0]()
        self.pause(4.0)

    def _quotas(self) -> str:
        return PLACES["ResourceQuota"].format(namespace=self.chance.choice(NAMESPACES))

    def _limit(self) -> None:
        """Another limit, larger or smaller than what is in use."""
        hard = {
            "pods": str(self.chance.choice((3, 10, 30))),
            "count/pods": str(self.chance.choice((20, 40))),
            "requests.cpu": str(self.chance.choice((2, 8, 20))),
            "requests.memory": f"{self.chance.choice((4, 12, 40))}Gi",
            "count/resourceclaims.resource.k8s.io": str(self.chance.choice((4, 15, 30))),
            f"requests.{EXTENDED}": str(self.chance.choice((1, 4, 10))),
            f"requests.{PLUGIN}": str(self.chance.choice((1, 4))),
            **{f"{driver}{DEVICES}": str(self.chance.choice((2, 6, 70))) for driver in DRIVERS},
        }
        for key in self.chance.sample(sorted(hard), self.chance.randrange(len(hard))):
            del hard[key]
        place, name = self._quotas(), f"quota-{self.chance.randrange(3)}"
        body: Document = {"metadata": {"name": name}, "spec": {"hard": hard}}
        if self.chance.random() < 0.2:
            scope = self.chance.choice(("Terminating", "NotTerminating", "BestEffort", "NotBestEffort"))
            body = {
                "metadata": {"name": f"scoped-{scope.lower()}"},
                "spec": {"hard": {"pods": str(self.chance.choice((2, 8)))}, "scopes": [scope]},
            }
        answer = self.client.ask("POST", place, body)
        if answer is not None and answer.status_code == 409:
            self.client.ask("PATCH", f"{place}/{body['metadata']['name']}", {"spec": {"hard": body["spec"]["hard"]}})

    def _lift(self) -> None:
        self.client.ask("DELETE", f"{self._quotas()}/quota-{self.chance.randrange(3)}")

    def _change_a_class(self) -> None:
        driver = self.chance.choice((PARTS, SHARES))
        path = f"{PLACES['DeviceClass']}/{driver}"
        nothing = {"cel": {"expression": "device.driver == 'nobody.example.com'"}}
        self.client.ask("PATCH", path, {"spec": {"selectors": [nothing]}})
        self.pause(6.0)
        self.client.ask("PATCH", path, {"spec": class_of(driver)["spec"]})

    def _taint(self) -> None:
        driver, name = self.chance.choice(DRIVERS), f"{self.name}-{next(self._numbers)}"
        spec = {
            "deviceSelector": {"driver": driver},
            "taint": {"key": "storm.example.com/rule", "effect": self.chance.choice(("NoSchedule", "NoExecute"))},
        }
        self.client.ask("POST", PLACES["DeviceTaintRule"], {"metadata": {"name": name}, "spec": spec})
        self.pause(6.0)
        self.client.ask("DELETE", f"{PLACES['DeviceTaintRule']}/{name}")

    def _node(self) -> str:
        return f"{PLACES['Node']}/{self.chance.choice(NODES)}"

    def _cordon(self) -> None:
        node = self._node()
        self.client.ask("PATCH", node, {"spec": {"unschedulable": True}})
        self.pause(5.0)
        self.client.ask("PATCH", node, {"spec": {"unschedulable": None}})

    def _lose_a_node(self) -> None:
        """Deleted; whoever imitates it registers it again."""
        self.client.ask("DELETE", self._node())

    def _out_of_service(self) -> None:
        """Said of a node that may well be alive."""
        node = self._node()
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        self.client.ask("PATCH", node, {"spec": {"taints": [taint]}})
        self.pause(10.0)
        self.client.ask("PATCH", node, {"spec": {"taints": None}})

    def _shrink_a_node(self) -> None:
        """Until it tells its status again."""
        self.client.ask("PATCH", f"{self._node()}/status", {"status": {"allocatable": {**ALLOCATABLE, "cpu": "4"}}})
