"""Causes are values: each can be kept as JSON and told in words, and nobody reads a cause out of a text."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_args

import pytest

import dashboard
from claims.causes import causes, messages, next_steps
from claims.causes.causes import (
    AnyCause,
    Fault,
    NodeRefusal,
    NoNodeFits,
    RefusingOperand,
    TroubledPool,
    claim_of,
    decode,
    encode,
)
from claims.causes.messages import brief, clause, message
from claims.causes.next_steps import NO_SINGLE_CHANGE, TOPICS, outside, topic_of

FEW: dict[str, Any] = {"claim": "a/b", "request": "gpu", "wanted": 2, "before": 5, "left": 1, "most": 1}
POOL = TroubledPool("gpu.example.com", "node-1", "incomplete", "1 of 2 slices of generation 1")
EVEN = RefusingOperand(
    text="memory >= 200Gi", refuses=4, subject="memory", operator=">=", limit="200Gi", greatest="80Gi"
)
PLUGINS = (
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodeResourcesFit", "DynamicResources",
    "VolumeBinding"
)  # fmt: skip

#: At least one of every class of causes.
CAUSES: tuple[AnyCause, ...] = (
    causes.Gated(),
    causes.ClaimNotCreated("a/pod", "gpu"),
    causes.ClaimNotFound("b"),
    causes.ClaimBeingDeleted("b"),
    causes.ClaimNotForPod("a/b", "a/pod"),
    causes.ClaimInUse(),
    causes.ClaimNotShareable("cpus"),
    causes.ClassMissing("gpu", "h100"),
    causes.ParametersMissing("my-card", detail="claim parameters default/wanted not found"),
    causes.NobodyAllocates("resource class cards does not exist"),
    causes.VolumeClaimMissing("data", "disk"),
    causes.VolumeClaimNotCreated("web-disk", "disk"),
    causes.VolumeClaimUnusable("data", "disk", 'persistentvolumeclaim "data" is being deleted'),
    causes.ClaimNotMade("a/pod", "exceeded quota: team"),
    causes.GroupMissing("train"),
    causes.GroupIncomplete("train", pods=2, wanted=3),
    causes.GroupDoesNotFit("train", placed=2, wanted=3),
    causes.GroupDoesNotFit("train", placed=3, wanted=3, room="node-1"),
    causes.Interrupted("overtaken"),
    causes.AwaitingDrivers("waiting for resource driver to allocate resource", ("gpu.example.com",)),
    *(causes.Misconfigured(fault, "it is wrong") for fault in Fault),
    causes.SearchStopped(7),
    causes.SearchStopped(7, timed_out=True),
    *(NodeRefusal(plugin, "cpu", "4") for plugin in PLUGINS),
    causes.CannotAllocate(),
    causes.TooFewPublished(**FEW),
    causes.TooFewPublished(**FEW | {"left": 0}),
    causes.PoolsUnusable(**FEW, pools=(POOL,), more_pools=2, worst_pool=POOL),
    causes.NotVisible(**FEW, node="node-1"),
    causes.NotVisible(**FEW | {"left": 4}),
    causes.NotSelected(**FEW, class_name="gpu", expression="device.driver == 'x'", operand=EVEN),
    causes.NotSelected(**FEW, class_name="gpu", expression="device.driver == 'x'", by_class=True, selector=2),
    causes.Tainted(**FEW, taints=(("broken", "", "NoSchedule"), ("k", "v", "NoExecute"))),
    causes.TooSmall(**FEW, capacity=(("memory", "80Gi"),)),
    causes.DevicesInUse(**FEW, nodes=(1, 3)),
    causes.DevicesInUse(**FEW | {"left": 0}, shared=True, pools=(POOL,), worst_pool=POOL),
    causes.DevicesInUse(**FEW | {"left": 0}),
    causes.DevicesInUse(**FEW | {"left": 4}),
    causes.NotTogether(),
    causes.NoCommonValue(claim="a/b", attribute="example.com/root", wanted=2, most=1),
    causes.TooFewValues(claim="a/b", attribute="example.com/root", wanted=2, values=1),
    causes.CountersExhausted(request="gpu", wanted=2, accepted=3),
    causes.RequestsCompete(4, 3),
    causes.RequestsCompete(2, 1, claim="a/b"),
    causes.ConstraintsUnmet("a/b", ("matchAttribute: example.com/root",)),
    causes.QuotaUsedUp(quota="most", key="manciple.dev/allocated.gpu", requested="1", used="2", hard="2"),
    causes.AwaitingBinding("node-1"),
    causes.BindingFailed("b", reason="Fabric", detail="no free port"),
    causes.BindingFailed("b", timed_out=True),
    causes.NotPlaced(scheduler="volcano", nodes=("node-1",), more=2, seconds=190),
    causes.NotJudged(why=("you may not list nodes",), forbidden=True),
    NoNodeFits(nodes=0),
    NoNodeFits(nodes=3, refused=((NodeRefusal("NodeName"), 2), (NodeRefusal("NodeResourcesFit", "pods"), 1))),
    NoNodeFits(nodes=2, refused=((NodeRefusal("InterPodAffinity", "anti-affinity", resolvable=True), 2),)),
    NoNodeFits(nodes=1, refused=((causes.CannotAllocate(), 1),), because=causes.DevicesInUse(**FEW)),
    NoNodeFits(nodes=1, because=causes.ClaimNotFound("b"), deallocated=True),
)


def test_every_class_of_causes_is_among_them() -> None:
    assert {type(cause) for cause in CAUSES} == set(get_args(AnyCause))


def test_no_two_classes_have_the_same_code() -> None:
    codes = {type(cause): encode(cause).split('"')[3] for cause in CAUSES}
    assert len(set(codes.values())) == len(codes)
    assert codes[NoNodeFits] == "no-node-fits"


@pytest.mark.parametrize("cause", CAUSES, ids=repr)
def test_a_cause_comes_back_from_its_json(cause: AnyCause) -> None:
    assert decode(encode(cause)) == cause


@pytest.mark.parametrize("cause", CAUSES, ids=repr)
def test_a_cause_is_told_in_words(cause: AnyCause) -> None:
    for text in (message(cause), clause(cause), clause(cause, names_claim=True)):
        assert text.strip() == text != ""
        assert "{" not in text.replace("{cpu: 4}", "")
    for text in (outside(cause), brief(cause)):
        assert text.endswith(".")


@pytest.mark.parametrize("cause", CAUSES, ids=repr)
def test_the_topic_comes_from_the_value_alone(cause: AnyCause, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("message", "clause", "brief", "sentence"):
        monkeypatch.delattr(messages, name)
        monkeypatch.delattr(next_steps, name, raising=False)
    assert topic_of(cause).key in TOPICS.keys() - {"turn"}


def test_every_topic_has_causes() -> None:
    assert {topic_of(cause).key for cause in (None, *CAUSES)} == TOPICS.keys()


def test_what_another_version_wrote_is_no_cause() -> None:
    assert decode("") is None
    assert decode('{"code":"unheard-of"}') is None


def test_only_a_lack_of_devices_is_about_a_claim() -> None:
    assert claim_of(NoNodeFits(nodes=1, because=causes.DevicesInUse(**FEW))) == "a/b"
    assert claim_of(causes.ClaimNotFound("b")) == claim_of(None) == ""


# Nobody reads texts ---------------------------------------------------------------------------------------------------

PAGES = Path(dashboard.__file__).parent
#: What pages may ask of the module that makes the texts: the texts, and nothing that they begin or end with.
TO_TELL = {"brief", "clause", "message", "preemption_clause", "sentence"}
#: Words that only the scheduler's messages have.
SAID = (
    "nodes are available", "cannot allocate", "still not schedulable", "deallocation of",
    "not created yet", "Insufficient", "Too many pods", '" is being deleted', "untolerated",
)  # fmt: skip


@pytest.mark.parametrize("path", sorted(PAGES.rglob("*.py")), ids=lambda path: str(path.relative_to(PAGES)))
def test_no_page_parses_what_the_scheduler_says(path: Path) -> None:
    source = path.read_text().replace("InsufficientStorage", "FullDisk")  # an error of the API
    assert [words for words in SAID if words in source] == []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "claims.causes.messages":
            assert {name.name for name in node.names} <= TO_TELL
        assert not (isinstance(node, ast.ImportFrom) and any(name.name == "messages" for name in node.names)) or (
            node.module != "claims.causes"
        )


@pytest.mark.parametrize("cause", CAUSES, ids=repr)
def test_nothing_is_advised_about_requests_that_was_not_rehearsed(cause: AnyCause) -> None:
    """`insight.advice` does that; here no number, class or constraint is suggested."""
    because = cause.because if isinstance(cause, NoNodeFits) and cause.because else cause
    if isinstance(because, causes.TooFew | causes.NotTogether) and not getattr(because, "pools", None):
        expected = TOPICS["no-devices"].next_step if topic_of(cause).key == "no-devices" else NO_SINGLE_CHANGE
        assert outside(cause) in (expected, TOPICS["size"].next_step) or getattr(because, "unpublished", None)
