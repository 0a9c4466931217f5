"""A Kubernetes API server with a cluster of any size, for benchmarks of what reads one: lists in pages, and watches.

Objects are written when they are asked for, as long as those of a real cluster (managedFields included), so the server
needs no memory and little time. It runs in a process of its own. Lists are compressed as API servers do; watches are
not.
"""

from __future__ import annotations

import json
import os
import signal
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

NAMESPACES: Final = 50
DRIVER, CLASS = "gpu.example.com", "gpu"
EACH: Final = 8
MODELS: Final = ("A100", "H100", "H200", "L40S")
#: What wait for devices that no node has together; the first is `team-0/waiting-0`.
WAITING: Final = 20
_GROUPS: Final = {"namespaces": "", "nodes": "", "pods": "", "resourceslices": "resource.k8s.io",
                  "resourceclaims": "resource.k8s.io", "deviceclasses": "resource.k8s.io"}  # fmt: skip
_VERSION: Final = "1000000"
_CREATED: Final = "2026-11-01T08:00:00Z"
#: Lines of a watch that are sent together.
_TOGETHER: Final = 100


@dataclass(frozen=True, slots=True)
class Size:
    """claims: one of a device each, for the first pods; those of the waiting pods are among them."""

    nodes: int
    pods: int
    claims: int

    @property
    def objects(self) -> int:
        return NAMESPACES + 1 + 2 * self.nodes + self.pods + self.claims


# Objects --------------------------------------------------------------------------------------------------------------


def _uid(kind: str, number: int) -> str:
    """In no order, as those of a real cluster."""
    return str(UUID(bytes=blake2b(f"{kind}/{number}".encode(), digest_size=16).digest(), version=4))


def _meta(name: str, number: int, kind: str, *, namespace: str = "", **more: Any) -> dict[str, Any]:
    made = {"name": name, "uid": _uid(kind, number), "resourceVersion": str(1000 + number)}
    if namespace:
        made["namespace"] = namespace
    return {**made, "generation": 1, "creationTimestamp": _CREATED, **more}


def _managers(*fields: tuple[str, Any]) -> list[dict[str, Any]]:
    return [
        {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _CREATED, "fieldsType": "FieldsV1",
         "fieldsV1": of}
        for manager, of in fields
    ]  # fmt: skip


def _fields_of(value: Any) -> Any:
    """As managedFields name them."""
    if isinstance(value, dict):
        return {f"f:{name}": _fields_of(item) for name, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict) and "name" in value[0]:
        return {f'k:{{"name":"{one["name"]}"}}': {".": {}, **_fields_of(one)} for one in value}
    return {}


class Cluster:
    """The documents of a cluster, by plural and number."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.counts: Mapping[str, int] = {
            "namespaces": NAMESPACES, "nodes": size.nodes, "resourceslices": size.nodes, "deviceclasses": 1,
            "resourceclaims": size.claims, "pods": size.pods,
        }  # fmt: skip
        self._make: Mapping[str, Callable[[int], dict[str, Any]]] = {
            "namespaces": self._namespace, "nodes": self._node, "resourceslices": self._slice,
            "deviceclasses": self._class, "resourceclaims": self._claim, "pods": self._pod,
        }  # fmt: skip

    def text(self, plural: str, number: int) -> bytes:
        return json.dumps(self._make[plural](number), separators=(",", ":")).encode()

    def find(self, plural: str, namespace: str, name: str) -> bytes | None:
        """Only the last pods and claims, which wait, and what there is little of."""
        first = max(0, self.counts[plural] - 10_000)
        for number in range(first, self.counts[plural]):
            meta = (document := self._make[plural](number))["metadata"]
            if (meta.get("namespace", ""), meta["name"]) == (namespace, name):
                return json.dumps(document).encode()
        return None

    def _waits(self, number: int, count: int) -> int:
        """Which of the waiting it is, counted from 0; -1 for none."""
        return number - (count - WAITING) if number >= count - WAITING else -1

    def _namespace(self, number: int) -> dict[str, Any]:
        name = f"team-{number}" if number else "kube-system"
        name = "team-0" if number == NAMESPACES - 1 else name
        return {"metadata": _meta(name, number, "namespace"), "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"}}  # fmt: skip

    def _class(self, number: int) -> dict[str, Any]:
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        return {"metadata": _meta(CLASS, number, "class"), "spec": {"selectors": [selector]}}

    def _node(self, number: int) -> dict[str, Any]:
        name = f"gpu-{number:04}"
        sizes = {"cpu": "128", "ephemeral-storage": "900Gi", "hugepages-2Mi": "0", "memory": "1056Gi", "pods": "250"}
        types = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
        status = {
            "capacity": sizes,
            "allocatable": sizes,
            "conditions": [
                {"type": one, "status": str(one == "Ready"), "lastHeartbeatTime": _CREATED,
                 "lastTransitionTime": _CREATED, "reason": f"Kubelet{one}", "message": f"kubelet says {one}"}
                for one in types
            ],
            "addresses": [{"type": "InternalIP", "address": f"10.1.{number // 250}.{number % 250}"},
                          {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"machineID": f"{number:032}", "kernelVersion": "6.8.0", "osImage": "Ubuntu 24.04.1 LTS",
                         "containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": "v1.36.2",
                         "operatingSystem": "linux", "architecture": "amd64"},
            "images": [{"names": [f"registry.example.com/team/image-{one}@sha256:{one:064}"], "sizeBytes": 10**9 + one}
                       for one in range(20)],
        }  # fmt: skip
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                  "topology.kubernetes.io/zone": f"zone-{number % 3}"}  # fmt: skip
        managed = _managers(
            ("kubelet", {"f:status": _fields_of(status)}), ("kubeadm", {"f:metadata": _fields_of(labels)})
        )
        meta = _meta(name, number, "node", labels=labels, managedFields=managed)
        return {"metadata": meta, "spec": {"podCIDR": "10.2.0.0/24"}, "status": status}

    def _slice(self, number: int) -> dict[str, Any]:
        name = f"gpu-{number:04}"
        devices = [
            {
                "name": f"gpu-{index}",
                "attributes": {
                    "index": {"int": index}, "model": {"string": MODELS[number % len(MODELS)]},
                    "uuid": {"string": f"GPU-{number:05}-{index}"}, "numa": {"int": index // 4},
                    "driverVersion": {"version": "570.0.0"},
                    "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index:02}"},
                },
                "capacity": {"memory": {"value": "80Gi"}, "multiprocessors": {"value": "132"}},
            }
            for index in range(EACH)
        ]  # fmt: skip
        spec = {"driver": DRIVER, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}, "nodeName": name,
                "devices": devices}  # fmt: skip
        managed = _managers(("gpu-kubelet-plugin", {"f:spec": _fields_of(spec)}))
        return {"metadata": _meta(f"{name}-{DRIVER}", number, "slice", managedFields=managed), "spec": spec}

    def _place(self, number: int) -> tuple[str, str]:
        """The node and the device of an allocated claim; every node has some that are free, if there are fewer claims
        than devices.
        """
        return f"gpu-{number % self.size.nodes:04}", f"gpu-{number // self.size.nodes}"

    def _claim(self, number: int) -> dict[str, Any]:
        waits = self._waits(number, self.size.claims)
        pod, namespace = (f"train-{number}", f"team-{number % 40}") if waits < 0 else (f"waiting-{waits}", "team-0")
        selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model in ["H100", "H200"]'}}
        exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1 if waits < 0 else EACH}
        spec = {
            "devices": {"requests": [{"name": "gpu", "exactly": {**exactly, "selectors": [selector] * (waits >= 0)}}]}
        }
        user = {"resource": "pods", "name": pod, "uid": self._pod_uid(number)}
        status: dict[str, Any] = {}
        if waits < 0:
            node, device = self._place(number)
            on = {"key": "metadata.name", "operator": "In", "values": [node]}
            status = {
                "allocation": {
                    "devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": node, "device": device}]},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on]}]},
                    "allocationTimestamp": _CREATED,
                },
                "reservedFor": [user],
            }
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": user["uid"], "controller": True,
                 "blockOwnerDeletion": True}  # fmt: skip
        managed = _managers(
            ("kube-controller-manager", {"f:metadata": {"f:annotations": {}}, "f:spec": {"f:devices": {}}}),
            ("kube-scheduler", {"f:status": _fields_of(status)}),
        )
        meta = _meta(
            f"{pod}-gpu-x7k2p", number, "claim", namespace=namespace, generateName=f"{pod}-gpu-",
            ownerReferences=[owner],
            annotations={"resource.kubernetes.io/pod-claim-name": "gpu"}, managedFields=managed,
            finalizers=["resource.kubernetes.io/delete-protection"],
        )  # fmt: skip
        return {"metadata": meta, "spec": spec, "status": status}

    def _pod_uid(self, claim: int) -> str:
        pod = claim if self._waits(claim, self.size.claims) < 0 else self.size.pods - self.size.claims + claim
        return _uid("pod", pod)

    def _pod(self, number: int) -> dict[str, Any]:
        waits = self._waits(number, self.size.pods)
        name, namespace = (f"train-{number}", f"team-{number % 40}") if waits < 0 else (f"waiting-{waits}", "team-0")
        has_claim = waits >= 0 or number < self.size.claims - WAITING
        token = {"name": "kube-api-access-abcde", "readOnly": True,
                 "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}  # fmt: skip
        container = {
            "name": "train", "image": "registry.example.com/team/train:2026.11", "command": ["python", "train.py"],
            "env": [{"name": f"SETTING_{one}", "value": f"value-{one}"} for one in range(4)],
            "resources": {"requests": {"cpu": "4", "memory": "32Gi"}, "limits": {"memory": "32Gi"},
                          **({"claims": [{"name": "gpu"}]} if has_claim else {})},
            "volumeMounts": [token], "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
        }  # fmt: skip
        sources = [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1",
                                                                       "fieldPath": "metadata.namespace"}}]}},
        ]  # fmt: skip
        spec = {
            "containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "kube-api-access-abcde", "projected": {"sources": sources, "defaultMode": 420}}],
            "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default",
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {"key": f"node.kubernetes.io/{one}", "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": 300}
                for one in ("not-ready", "unreachable")
            ],
        }  # fmt: skip
        status: dict[str, Any] = {"phase": "Pending" if waits >= 0 else "Running", "qosClass": "Burstable"}
        if has_claim:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
            status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu-x7k2p"}]
        if waits >= 0:
            said = f"0/{self.size.nodes} nodes are available: {self.size.nodes} cannot allocate all claims."
            status["conditions"] = [{"type": "PodScheduled", "status": "False", "lastTransitionTime": _CREATED,
                                     "reason": "Unschedulable", "message": said}]  # fmt: skip
        else:
            spec["nodeName"] = self._place(number)[0]
            types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ip = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            status |= {
                "conditions": [{"type": one, "status": "True", "lastProbeTime": None, "lastTransitionTime": _CREATED}
                               for one in types],
                "hostIP": "10.1.0.1", "hostIPs": [{"ip": "10.1.0.1"}], "podIP": ip, "podIPs": [{"ip": ip}],
                "startTime": _CREATED,
                "containerStatuses": [
                    {"name": "train", "state": {"running": {"startedAt": _CREATED}}, "lastState": {}, "ready": True,
                     "restartCount": 0, "image": container["image"], "imageID": f"sha256:{number:064}",
                     "containerID": f"containerd://{number:064}", "started": True}
                ],
            }  # fmt: skip
        labels = {"app.kubernetes.io/name": "train", "team": namespace, "pod-template-hash": "7d4b9c6f5d"}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"train-{number % 500}", "controller": True,
                 "uid": _uid("replicaset", number % 500), "blockOwnerDeletion": True}  # fmt: skip
        managed = _managers(
            ("kube-controller-manager", {"f:metadata": {"f:labels": _fields_of(labels)}, "f:spec": _fields_of(spec)}),
            ("kubelet", {"f:status": _fields_of(status)}),
        )
        meta = _meta(
            name, number, "pod", namespace=namespace, labels=labels, ownerReferences=[owner], managedFields=managed
        )
        return {"metadata": meta, "spec": spec, "status": status}


# The server -----------------------------------------------------------------------------------------------------------


@contextmanager
def serving(size: Size, folder: Path, *, watch_lists: bool = True) -> Iterator[Path]:
    """Its kubeconfig, in `folder`. watch_lists: it can begin a watch with the state."""
    server = _Server(Cluster(size), watch_lists=watch_lists)
    child = os.fork()
    if not child:
        with suppress(KeyboardInterrupt):
            server.serve_forever()
        os._exit(0)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    server.server_close()
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "large",
                "contexts": [{"name": "large", "context": {"cluster": "large", "user": "me", "namespace": "team-0"}}],
                "clusters": [{"name": "large", "cluster": {"server": url}}],
                "users": [{"name": "me", "user": {"token": "t"}}],
            }
        )
    )
    try:
        yield path
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cluster: Cluster, *, watch_lists: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster, self.watch_lists = cluster, watch_lists


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts, query = urlsplit(self.path).path.strip("/").split("/"), parse_qs(urlsplit(self.path).query)
        if parts == ["version"]:
            self._answer(200, b'{"gitVersion":"v1.36.2"}')
        elif parts == ["apis"]:
            self._answer(200, _discovery())
        else:
            group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if parts[1:] else "", parts[3:])
            namespace = ""
            if rest[:1] == ["namespaces"] and rest[2:]:
                namespace, rest = rest[1], rest[2:]
            plural = rest[0] if rest else ""
            if _GROUPS.get(plural) != group:
                self._answer(404, b'{"kind":"Status","message":"the server could not find the requested resource"}')
            elif rest[1:]:
                found = self.server.cluster.find(plural, namespace, rest[1])
                self._answer(200 if found else 404, found or b'{"kind":"Status","message":"not found"}')
            elif "watch" in query:
                self._watch(plural, query)
            else:
                self._list(plural, query)

    def _list(self, plural: str, query: Mapping[str, list[str]]) -> None:
        start, count = int(query.get("continue", ["0"])[0]), self.server.cluster.counts[plural]
        end = min(start + int(query.get("limit", [count])[0]), count)
        more = b',"continue":"%d"' % end if end < count else b""
        items = b",".join(self.server.cluster.text(plural, number) for number in range(start, end))
        head = b'{"kind":"List","metadata":{"resourceVersion":"%s"%s},"items":[' % (_VERSION.encode(), more)
        self._answer(200, head + items + b"]}")

    def _watch(self, plural: str, query: Mapping[str, list[str]]) -> None:
        if "sendInitialEvents" in query and not self.server.watch_lists:
            self._answer(422, b'{"kind":"Status","message":"sendInitialEvents is forbidden"}')
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(OSError):  # whoever asked is gone
            if "sendInitialEvents" in query:
                for start in range(0, count := self.server.cluster.counts[plural], _TOGETHER):
                    numbers = range(start, min(start + _TOGETHER, count))
                    lines = (
                        b'{"type":"ADDED","object":%s}\n' % self.server.cluster.text(plural, one) for one in numbers
                    )
                    self.wfile.write(b"".join(lines))
                ends = b'{"k8s.io/initial-events-end":"true"}'
                meta = b'{"resourceVersion":"%s","annotations":%s}' % (_VERSION.encode(), ends)
                self.wfile.write(b'{"type":"BOOKMARK","object":{"metadata":%s}}\n' % meta)
            self.connection.recv(1)  # nothing happens until whoever watches goes

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        if "gzip" in self.headers.get("Accept-Encoding", "") and len(body) > 128 << 10:
            packer = zlib.compressobj(1, wbits=31)
            body = packer.compress(body) + packer.flush()
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        pass


def _discovery() -> bytes:
    groups: dict[str, list[dict[str, str]]] = {}
    for plural, group in _GROUPS.items():
        if group:
            groups.setdefault(group, []).append({"resource": plural})
    items = [
        {"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]}
        for name, resources in groups.items()
    ]
    return json.dumps({"kind": "APIGroupDiscoveryList", "items": items}).encode()
