"""The conversation of scheduler and plugins about the claims of one pod (KEP-3063, first draft), without a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claims.drafts.cdi import rules
from claims.drafts.cdi.negotiation import NegotiationStep, next_step, used_by
from claims.drafts.cdi.values import ALLOCATED, PENDING, ResourceClaim, ResourceClaimStatus
from claims.kinds.listed_claims import ResourceClaimSpec
from claims.kinds.pods import Pod
from manciple.wire.base import ObjectMeta, OwnerReference
from tests.claims.drafts.acme import AcmePlugin, only
from tests.examples import some

POD = Pod(metadata=ObjectMeta(name="pod", namespace="team", uid="p-1"))
NODES = ("node-1", "node-2", "node-3")
CLASSES = {"first": "first.acme.com", "second": "second.acme.com"}


def claim(name: str, class_name: str = "first", *, mode: str = "Delayed", memory: int = 1) -> ResourceClaim:
    spec = ResourceClaimSpec(resource_class_name=class_name, allocation_mode=mode, parameters={"memory": f"{memory}Gi"})
    plugin = CLASSES[class_name] if mode == "Immediate" else ""
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="team", uid=f"uid-{name}"),
        spec=spec,
        status=ResourceClaimStatus(phase=PENDING, user_limit=1, plugin_name=plugin),
    )


class Talk:
    """The claims of a pod, two plugins, and a scheduler; every write goes through the rules of the API."""

    def __init__(self, claims: Sequence[ResourceClaim], plugins: Sequence[AcmePlugin], nodes: Sequence[str] = NODES):
        self.claims = {one.metadata.name: one for one in claims}
        self.plugins = plugins
        self.nodes: Mapping[str, Mapping[str, str]] = {name: {} for name in nodes}
        self.writes = self.rests = 0

    def scheduler(self) -> NegotiationStep:
        claims = tuple(self.claims.values())
        step = next_step(POD, claims, self.nodes, exists=NODES.__contains__, plugins=CLASSES)
        for one in step.writes:
            self.write(one)
        self.rests += step.rests
        return step

    def plugin(self, plugin: AcmePlugin) -> bool:
        """Its first step on any claim; whether there was one."""
        for one in self.claims.values():
            if (answer := plugin.answer(one, tuple(self.claims.values()))) is not None:
                self.write(answer)
                return True
        return False

    def write(self, new: ResourceClaim) -> None:
        old = self.claims[new.metadata.name]
        assert new != old, "a step that changes nothing is none"
        if new.status != old.status:
            stored = rules.update_claim_status(new, old)
            assert not rules.validate_claim_status_update(stored, old)
            new = replace(new, status=stored.status)
        self.claims[new.metadata.name] = new
        self.writes += 1

    def ends(self, *, within: int = 60) -> NegotiationStep:
        """What the scheduler says when nobody writes any more."""
        while self.writes < within:
            before = self.writes
            step = self.scheduler()
            for plugin in self.plugins:
                self.plugin(plugin)
            if self.writes == before:
                return step
        raise AssertionError(f"they still talk after {within} writes: {self.claims}")


def both(first: Mapping[str, int], second: Mapping[str, int]) -> tuple[AcmePlugin, AcmePlugin]:
    return AcmePlugin(name="first.acme.com", memory=first), AcmePlugin(name="second.acme.com", memory=second)


def test_potential_nodes_then_suitable_nodes_then_the_selected_node_then_the_allocation() -> None:
    plugin = AcmePlugin(name="first.acme.com", memory={"node-2": 2})
    talk = Talk([claim("gpu")], [plugin])
    assert "suitable nodes" in talk.scheduler().waits
    status = talk.claims["gpu"].status
    assert (status.plugin_name, status.potential_nodes, status.suitable_nodes) == ("first.acme.com", NODES, ())
    talk.plugin(plugin)
    assert talk.claims["gpu"].status.suitable_nodes == ("node-2",)
    talk.scheduler()
    assert talk.claims["gpu"].status.selected_node == "node-2"
    assert talk.ends().nodes == {"node-2"}


def test_a_step_that_only_waits_writes_nothing() -> None:
    talk = Talk([claim("gpu")], [])
    talk.scheduler()
    for _ in range(3):
        assert talk.scheduler().writes == ()


def test_nodes_are_offered_again_when_there_are_more() -> None:
    talk = Talk([claim("gpu")], [], nodes=NODES[:1])
    talk.scheduler()
    talk.nodes = {name: {} for name in NODES}
    talk.scheduler()
    assert talk.claims["gpu"].status.potential_nodes == NODES


def test_a_node_that_the_plugin_unsets_triggers_another_attempt_elsewhere() -> None:
    plugin = AcmePlugin(name="first.acme.com", memory=dict.fromkeys(NODES, 1), breaks=frozenset({"node-1"}))
    assert Talk([claim("gpu")], [plugin]).ends().nodes == {"node-2"}


def test_for_immediate_allocation_the_plugin_selects_the_node_and_the_scheduler_does_not() -> None:
    plugin = AcmePlugin(name="first.acme.com", memory={"node-3": 1})
    talk = Talk([claim("gpu", mode="Immediate")], [plugin])
    assert talk.scheduler().writes == ()
    assert talk.ends().nodes == {"node-3"}


def test_what_is_allocated_where_the_pod_cannot_run_is_released_and_allocated_elsewhere() -> None:
    plugin = AcmePlugin(name="first.acme.com", memory=dict.fromkeys(NODES, 1))
    talk = Talk([claim("gpu")], [plugin])
    assert talk.ends().nodes == {"node-1"}
    talk.nodes = {"node-2": {}}
    assert talk.ends().nodes == {"node-2"}


def test_two_plugins_agree_on_a_node() -> None:
    talk = Talk([claim("a"), claim("b", "second")], both({"node-1": 1, "node-2": 1}, {"node-2": 1, "node-3": 1}))
    assert talk.ends().nodes == {"node-2"}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"available_on_nodes": only("node-9"), "user_limit": -1}, "available on none of the nodes"),
        ({"user_limit": 1}, "is in use: 1 of 1 users"),
    ],
)
def test_an_allocation_stays_while_somebody_uses_it(status: dict[str, Any], why: str) -> None:
    user = OwnerReference(api_version="v1", kind="Pod", name="other", uid="p-2")
    used = ResourceClaimStatus(phase=ALLOCATED, plugin_name="first.acme.com", used_by=(user,), **status)
    step = Talk([replace(claim("gpu"), status=used)], []).scheduler()
    assert step.writes == ()
    assert why in step.waits


MEMORY = st.dictionaries(st.sampled_from(NODES), st.integers(0, 3))
WANTED = st.lists(
    st.tuples(
        st.sampled_from(sorted(CLASSES)), st.integers(1, 2), st.sampled_from(["Delayed", "Delayed", "Immediate"])
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=some(60))
@given(first=MEMORY, second=MEMORY, wanted=WANTED)
def test_claims_that_fit_on_one_node_together_end_on_one_and_a_pod_that_is_let_go_has_all_on_one(
    first: Mapping[str, int], second: Mapping[str, int], wanted: list[tuple[str, int, str]]
) -> None:
    claims = [claim(f"c{at}", name, memory=much, mode=mode) for at, (name, much, mode) in enumerate(wanted)]
    talk = Talk(claims, both(first, second))
    together = all(mode == "Delayed" for _, _, mode in wanted) and any(
        _fits(first, second, wanted, one) for one in NODES
    )
    try:
        step = talk.ends(within=200)
    except AssertionError:
        assert not together, "what fits nowhere together may be tried for ever"
        assert talk.rests > talk.writes // 40, "with a rest after each round"
        return
    assert bool(step.waits) is not bool(step.nodes)
    assert bool(step.nodes) or not together
    for node in step.nodes:
        assert all(one.status.phase == ALLOCATED for one in talk.claims.values())
        assert all(one.status.attributes["node"] == node for one in talk.claims.values())
        assert all(
            POD.metadata.uid in {user.uid for user in used_by(one, POD).status.used_by} for one in talk.claims.values()
        )


def _fits(first: Mapping[str, int], second: Mapping[str, int], wanted: list[tuple[str, int, str]], node: str) -> bool:
    have = {"first": first.get(node, 0), "second": second.get(node, 0)}
    return all(sum(much for name, much, _ in wanted if name == one) <= have[one] for one in have)
