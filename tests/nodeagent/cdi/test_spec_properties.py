"""Any spec that is built from valid parts is valid, has the lowest version that a runtime accepts, and is read back."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.cdi import (
    HOOK_NAMES,
    VERSIONS,
    CdiDevice,
    ContainerEdits,
    DeviceNode,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Spec,
    parse_spec,
    validate_spec,
)
from tests.examples import some

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
NAME = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,8}[A-Za-z0-9])?", fullmatch=True)
PART = st.from_regex(r"[A-Za-z]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?", fullmatch=True)
PATH = TEXT.map(lambda text: f"/{text}")
NUMBER = st.integers(0, 2**32 - 1)
ENV = st.lists(
    st.tuples(st.from_regex(r"[A-Z_]{1,6}", fullmatch=True), TEXT).map("=".join), max_size=3
).map(tuple)  # fmt: skip
NODES = st.builds(
    DeviceNode,
    path=PATH,
    host_path=st.just("") | PATH,
    type=st.sampled_from(["", "b", "c", "u", "p"]),
    major=NUMBER,
    minor=NUMBER,
    file_mode=st.none() | st.integers(0, 0o777),
    permissions=st.sampled_from(["", "r", "rw", "rwm", "none"]),
    uid=st.none() | NUMBER,
    gid=st.none() | NUMBER,
)
MOUNTS = st.builds(Mount, host_path=PATH, container_path=PATH, options=st.lists(TEXT, max_size=2).map(tuple), type=TEXT)
HOOKS = st.builds(
    Hook, hook_name=st.sampled_from(HOOK_NAMES), path=PATH, env=ENV, timeout=st.none() | st.integers(1, 60)
)
RDT = st.builds(
    IntelRdt,
    clos_id=st.sampled_from(["", "/", "gold"]),
    l3_cache_schema=TEXT,
    schemata=st.none() | st.lists(TEXT, max_size=2).map(tuple),
    enable_monitoring=st.booleans(),
)
NETWORK = st.lists(
    st.builds(NetDevice, host_interface_name=NAME, name=NAME),
    max_size=2,
    unique_by=(lambda d: d.name, lambda d: d.host_interface_name),
)


def several(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=2).map(tuple)


EDITS = st.builds(
    ContainerEdits,
    env=ENV,
    device_nodes=several(NODES),
    net_devices=st.just(()) | NETWORK.map(tuple),
    mounts=several(MOUNTS),
    hooks=several(HOOKS),
    intel_rdt=st.none() | RDT,
    additional_gids=several(NUMBER),
)
ANNOTATIONS = st.dictionaries(PART.filter(lambda key: len(key) < 60), TEXT, max_size=2)
DEVICES = st.lists(
    st.builds(
        CdiDevice, name=NAME, container_edits=EDITS.filter(lambda e: e != ContainerEdits()), annotations=ANNOTATIONS
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda device: device.name,
)
SPECS = st.builds(
    Spec.of,
    st.tuples(PART, PART).map("/".join),
    DEVICES.map(tuple),
    edits=st.none() | EDITS,
)


@settings(max_examples=some(25))
@given(SPECS)
def test_a_spec_of_valid_parts_is_valid_and_comes_back_from_its_file(spec: Spec) -> None:
    content = msgspec.json.encode(spec)

    assert validate_spec(msgspec.json.decode(content)) == []
    assert parse_spec(content, suffix=".json") == spec


@settings(max_examples=some(25))
@given(SPECS)
def test_every_version_from_the_lowest_up_is_accepted_and_none_below(spec: Spec) -> None:
    lowest = VERSIONS.index(spec.cdi_version)
    for index, version in enumerate(VERSIONS):
        problems = validate_spec(msgspec.json.decode(msgspec.json.encode(replace(spec, cdi_version=version))))
        assert [p.partition(":")[0] for p in problems] == ([] if index >= lowest else ["cdiVersion"])
