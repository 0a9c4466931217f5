"""Each invariant notices its violation, and names it; a sound cluster has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import cast

import pytest
from django.core.management import CommandError, call_command
from msgspec import structs

from claims.controllers.reservations import FINALIZER
from claims.drafts.cdi.values import ResourceClaim as DraftClaim
from claims.kinds.listed_claims import ResourceClaimSpec as DraftClaimSpec
from claims.kinds.pods import Pod, PodCondition
from claims.kinds.quotas import ResourceQuota, ResourceQuotaStatus
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import Counter, CounterSet, DeviceCounterConsumption
from manciple.store.records import EventRecord, EventType, Stored
from manciple.wire import codec
from manciple.wire.base import ObjectMeta
from manciple.wire.resources import DRAFT_CLAIMS
from scheduling.cluster_facts import ClusterFacts, NodeFiles, Replay, gather, node_files
from scheduling.invariants import nodes_agree_with_their_disks, violations
from scheduling.management.commands import check_invariants
from tests.builders import (
    CLASS,
    CREATED,
    NAMESPACE,
    make_allocation,
    make_claim,
    make_consumer,
    make_device,
    make_node,
    make_pod,
    make_quota,
    make_result,
    make_slice,
    stored,
)
from tests.outlines import Outline
from tests.scheduling.cluster import Cluster

NOW = datetime.fromisoformat(CREATED)
SHARE = "00000000-0000-4000-8000-00000000000"


def held(name: str = "claim", *pods: Pod, protected: bool = True, **result: object) -> ResourceClaim:
    allocation = make_allocation(make_result(**result))  # type: ignore[arg-type]
    return stored(
        make_claim(
            name,
            allocation=allocation,
            reserved_for=[make_consumer(pod) for pod in pods],
            finalizers=(FINALIZER,) if protected else (),
        )
    )


def bound(name: str = "pod", claim: str = "claim", *, node: str = "node-1", phase: str = "Running") -> Pod:
    pod = stored(make_pod(name, claims={"gpu": claim}, node=node))
    conditions = (PodCondition(type="PodScheduled", status="True"),)
    return structs.replace(pod, status=structs.replace(pod.status, phase=phase, conditions=conditions))


def quota(used: dict[str, str], namespace: str = NAMESPACE) -> ResourceQuota:
    made = make_quota(dict.fromkeys(used, "9"), namespace=namespace)
    return stored(structs.replace(made, status=ResourceQuotaStatus(hard=made.spec.hard, used=used)))


DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"
ELSEWHERE = quota({"pods": "0"}, namespace="elsewhere")
DRAFTS_OF_CLASS = "acme-gpu.resourceclass.cdi.k8s.io/resourceclaims"
DRAFTS = {
    name: Stored(
        resource=DRAFT_CLAIMS,
        namespace=namespace,
        name=name,
        uid=name,
        revision=1,
        text=codec.encode(
            DraftClaim(
                api_version="cdi.k8s.io/v1alpha1",
                kind="ResourceClaim",
                metadata=ObjectMeta(namespace=namespace, name=name, uid=name),
                spec=DraftClaimSpec(resource_class_name="acme-gpu"),
            )
        ).decode(),
        labels_text="{}",
        deleting=False,
    )
    for namespace, name in ((NAMESPACE, "first"), (NAMESPACE, "second"), ("elsewhere", "third"))
}
POD = bound()
SOUND = ClusterFacts(now=NOW, claims=(held("claim", POD),), pods=(POD,), nodes=(stored(make_node()),))


def partitions(drawn: str) -> ClusterFacts:
    """Two allocated partitions of a pool with 8 units, each drawing `drawn` of them."""
    consumption = DeviceCounterConsumption(counter_set="memory", counters={"units": Counter(value=drawn)})
    devices = [make_device(f"gpu-{number}", consumes_counters=(consumption,)) for number in (0, 1)]
    counters = CounterSet(name="memory", counters={"units": Counter(value="8")})
    slices = (
        stored(make_slice("counters", devices=(), shared_counters=(counters,), slices=2)),
        stored(make_slice("devices", devices=devices, slices=2)),
    )
    claims = (held("a", POD, device="gpu-0"), held("b", POD, device="gpu-1"))
    return with_facts(SOUND, claims=claims, slices=slices, pods=(bound(claim="a"),))


def shares(each: str) -> ClusterFacts:
    """Two shares of a device with 80Gi."""
    device = make_device("gpu-0", capacity={"memory": "80Gi"}, allow_multiple_allocations=True)
    claims = tuple(
        held(name, POD, device="gpu-0", share_id=f"{SHARE}{position}", consumed_capacity={"memory": each})
        for position, name in enumerate(("a", "b"))
    )
    slices = (stored(make_slice(devices=[device])),)
    return with_facts(SOUND, claims=claims, slices=slices, pods=(bound(claim="a"),))


def with_facts(facts: ClusterFacts, **changes: object) -> ClusterFacts:
    return replace(facts, **changes)  # type: ignore[arg-type]


def with_files(prepared: set[str], described: set[str]) -> ClusterFacts:
    files = NodeFiles(prepared=frozenset(prepared), described=frozenset(described))
    return with_facts(SOUND, files={"node-1": files})


UID = SOUND.claims[0].metadata.uid

CASES: dict[str, tuple[ClusterFacts, list[str]]] = {
    "a pod with its claim": (SOUND, []),
    "nothing at all": (ClusterFacts(now=NOW), []),
    "one device in two claims": (
        with_facts(SOUND, claims=(*SOUND.claims, held("other", POD))),
        ["device gpu.example.com/node-1/gpu-0 is allocated to default/claim, default/other"],
    ),
    "a device held and shared": (
        with_facts(SOUND, claims=(*SOUND.claims, held("other", POD, share_id=f"{SHARE}0"))),
        ["device gpu.example.com/node-1/gpu-0 is allocated to default/claim and shared by default/other"],
    ),
    "a device held and watched with admin access": (
        with_facts(SOUND, claims=(*SOUND.claims, held("other", POD, admin_access=True))),
        [],
    ),
    "shares that fit": (shares("40Gi"), []),
    "shares that do not fit": (
        shares("41Gi"),
        ["capacity memory of device gpu.example.com/node-1/gpu-0 is consumed beyond what is published"],
    ),
    "partitions that fit": (partitions("4"), []),
    "partitions that do not fit": (
        partitions("5"),
        ["counter memory/units of pool gpu.example.com/node-1 is drawn beyond what is published"],
    ),
    "allocated without the finalizer": (
        with_facts(SOUND, claims=(held("claim", POD, protected=False),)),
        [f"claim default/claim is allocated without the finalizer {FINALIZER}"],
    ),
    "reserved but not allocated": (
        ClusterFacts(now=NOW, claims=(stored(make_claim(reserved_for=[make_consumer(POD)])),), pods=(POD,)),
        [
            "claim default/claim is reserved but not allocated",
            "pod default/pod on node-1: claim claim is not allocated",
        ],
    ),
    "a bound pod without its claim": (
        with_facts(SOUND, claims=()),
        ["… default/pod … node-1: … claim does not exist"],
    ),
    "a bound pod whose claim is not reserved for it": (
        with_facts(SOUND, pods=(POD, bound("other"))),
        ["… default/other … node-1: … claim is not reserved for it"],
    ),
    "a pod bound where its claim is not": (
        with_facts(
            SOUND,
            pods=(bound(node="node-2"),),
            nodes=(stored(make_node("node-1")), stored(make_node("node-2"))),
        ),
        ["… default/pod … node-2: … claim is not available there"],
    ),
    "a pod that a user bound by hand is its node's to refuse": (
        with_facts(SOUND, pods=(POD, stored(make_pod("manual", claims={"gpu": "claim"}, node="node-1")))),
        [],
    ),
    "quotas that tell what is used": (
        with_facts(SOUND, quotas=(quota({"pods": "1", "count/pods": "1", DEVICES: "1", "secrets": "0"}), ELSEWHERE)),
        [],
    ),
    "quotas that tell something else": (
        with_facts(SOUND, quotas=(quota({"pods": "2", DEVICES: "0", "secrets": "1"}),)),
        [
            f"quota default/most tells {DEVICES}=0, and 1 is used",
            "quota default/most tells pods=2, and 1 is used",
            "quota default/most tells secrets=1, and 0 is used",
        ],
    ),
    "a quota that counts claims of the first draft by their class": (
        with_facts(SOUND, replay=Replay(live=DRAFTS, unsettled=set(DRAFTS)), quotas=(quota({DRAFTS_OF_CLASS: "1"}),)),
        [f"quota default/most tells {DRAFTS_OF_CLASS}=1, and 2 is used"],
    ),
    "a claim whose pod has finished": (
        with_facts(SOUND, pods=(bound(phase="Succeeded"),)),
        ["claim default/claim is allocated, and nobody holds it"],
    ),
    "a claim whose pod is gone": (
        with_facts(SOUND, pods=()),
        ["…default/claim …"],
    ),
    "prepared, described and used": (with_files({UID}, {UID}), []),
    "prepared without a CDI file": (
        with_files({UID}, set()),
        [f"node node-1: claim {UID} is in the checkpoint but no CDI file"],
    ),
    "a CDI file without a record": (
        with_files(set(), {UID}),
        [
            f"node node-1: claim {UID} is in a CDI file but not the checkpoint",
            f"node node-1: claim {UID} is used by a running pod but not prepared",
        ],
    ),
    "prepared for nobody": (
        with_files({UID, "old"}, {UID, "old"}),
        ["node node-1: claim old is prepared for no pod"],
    ),
}


@pytest.mark.parametrize("phrase", CASES)
def test_cluster(phrase: str) -> None:
    facts, expected = CASES[phrase]
    found = [sentence for sentences in violations(facts).values() for sentence in sentences]
    assert found == [Outline(one) for one in expected]


@dataclass(frozen=True)
class Entry:
    """An event, or a live object, of the replay."""

    revision: int
    type: str = "ADDED"
    uid: str = "u"
    text: str = "{}"

    @property
    def logged(self) -> EventRecord:
        type_ = cast("EventType", self.type)
        return EventRecord(
            revision=self.revision, type=type_, resource="pods", namespace="", name="", uid=self.uid, document=self.text
        )

    @property
    def stored(self) -> Stored:
        return Stored(
            resource="pods",
            namespace="",
            name="",
            uid=self.uid,
            revision=self.revision,
            text=self.text,
            labels_text="{}",
            deleting=False,
        )


Log = list[Entry]
REPLAYS: dict[str, tuple[Log, Log, Log, list[str]]] = {
    "log and state agree": ([Entry(1), Entry(2, "MODIFIED", text="b")], [Entry(2, text="b")], [], []),
    "deleted, and gone": ([Entry(1), Entry(2, "DELETED")], [], [], []),
    "the state is behind the log": (
        [Entry(1), Entry(2, "MODIFIED", text="b")],
        [Entry(1)],
        [],
        ["pods u differs from its last event"],
    ),
    "it changed while we were reading": ([Entry(1)], [Entry(2, text="b")], [Entry(2, "MODIFIED", text="b")], []),
    "deleted, but there": ([Entry(1, "DELETED")], [Entry(1)], [], ["pods u exists, but the log says it was deleted"]),
    "there, but never logged": ([], [Entry(9)], [], ["pods u exists, but the log does not tell of it"]),
    "logged, but not there": ([Entry(1)], [], [], ["pods u is gone, but the log does not say so"]),
    "revisions out of order": (
        [Entry(2), Entry(1, "MODIFIED")],
        [Entry(1)],
        [],
        ["revision 1 of pods u comes after revision 2"],
    ),
    "created twice": ([Entry(1), Entry(2)], [Entry(2)], [], ["revision 2 of pods u is ADDED after ADDED"]),
}


@pytest.mark.parametrize("phrase", REPLAYS)
def test_replay(phrase: str) -> None:
    log, live, later, expected = REPLAYS[phrase]
    replay = Replay()
    replay.feed([one.logged for one in log])
    replay.compare_with([one.stored for one in live], [one.logged for one in later])
    assert list(replay.differences()) == expected


def test_what_lies_on_the_nodes_disks_is_read_and_plugins_may_write_their_own_cdi_files(tmp_path: Path) -> None:
    claims, cdi = tmp_path / "nodes" / "node-1" / "claims", tmp_path / "cdi" / "node-1"
    claims.mkdir(parents=True)
    cdi.mkdir(parents=True)
    mine, plugins = {"driver": "gpu.example.com", "cdiFile": True}, {"driver": "gpu.acme.com"}
    records: list[tuple[str, str, list[object]]] = [
        ("a", "Prepared", [mine]),
        ("b", "Preparing", [mine]),
        ("c", "Prepared", [plugins]),
        ("d", "Prepared", [plugins, mine]),
    ]
    for uid, state, drivers in records:
        record = {"uid": uid, "state": state, "drivers": drivers}
        (claims / f"{uid}.json").write_text(json.dumps({"version": 1, "claim": record}))
    (cdi / "k8s.gpu.example.com-claim_a.json").write_text("{}")
    (cdi / "acme-c.json").write_text("{}")
    files = NodeFiles(prepared=frozenset("acd"), described=frozenset("ac"))
    assert node_files(tmp_path) == {"node-1": files}
    first = next(iter(nodes_agree_with_their_disks(with_facts(SOUND, files={"node-1": files}))))
    assert first.startswith("node node-1: claim d ")


def run_command(*, patience: float = 0.0) -> str:
    out = StringIO()
    try:
        call_command("check_invariants", patience=patience, stdout=out)
    except CommandError as error:
        out.write(f"exit {error.returncode}")
    return out.getvalue()


def test_the_command_prints_one_line_for_each_and_fails_on_a_violation(cluster: Cluster) -> None:
    assert run_command().splitlines() == [
        "ok       1 no device is given twice",
        "ok       2 allocated claims are protected, reserved claims allocated",
        "ok       3 bound pods have their claims",
        "ok       4 quotas tell what is used",
        "ok       5 claims that nobody holds are free",
        "ok       6 nodes agree with their disks",
        "ok       7 the log gives the state",
        "ok       8 gangs are bound whole, claims reserved for groups that exist",
        "ok       9 negotiations with drivers end",
    ]
    claim = cluster.create_allocated(make_claim(), make_allocation())
    cluster.update(structs.replace(claim, metadata=structs.replace(claim.metadata, finalizers=())))
    printed = run_command().splitlines()
    assert printed[1] == Outline(f"VIOLATED 2 …: …default/claim … {FINALIZER}")
    assert printed[-1] == "exit 1"
    cluster.delete(cluster.claim("claim"))


def test_a_violation_that_heals_within_the_patience_is_none(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = with_facts(SOUND, pods=())
    looks: list[Callable[[], ClusterFacts]] = [lambda: broken, lambda: gather(NOW)]
    monkeypatch.setattr(check_invariants, "gather", lambda *_args: looks.pop(0)())
    monkeypatch.setattr(check_invariants, "LOOK_AGAIN", 0.0)
    assert "VIOLATED" not in run_command(patience=60)
