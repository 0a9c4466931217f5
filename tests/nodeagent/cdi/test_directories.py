"""The directories of the specification, as the agent and its simulated runtime use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeagent.config import AgentConfig
from nodeagent.failures import ContainerFailed
from nodeagent.node.catalog import create_runtime
from nodeagent.options import configuration, parser
from nodeagent.runtimes.protocol import ContainerRequest


def write(folder: Path, name: str, value: str) -> None:
    folder.mkdir(exist_ok=True)
    device = {"name": "all", "containerEdits": {"env": [f"FOUND={value}"]}}
    document = {"cdiVersion": "0.3.0", "kind": "vendor.com/gpu", "devices": [device]}
    (folder / name).write_text(json.dumps(document))


def found(folder: Path, *more: str) -> str:
    """What a container gets that a new agent starts. more: its further directories below the folder."""
    config = AgentConfig(
        server="", token="", node_name="n", state_dir=folder / "state", cdi_dir=folder / "own",
        more_cdi_dirs=tuple(folder / name for name in more),
    )  # fmt: skip
    (folder / "state" / "containers" / "u.json").unlink(missing_ok=True)
    request = ContainerRequest(
        pod_uid="u", namespace="default", pod="p", name="main", role="main", attempt=0, image="i", command=(), args=(),
        environment={}, cdi_devices=("vendor.com/gpu=all",), claims=(), annotations={},
    )  # fmt: skip
    runtime = create_runtime("simulated", config)
    runtime.start(request)
    return runtime.runs("u")["main"].environment["FOUND"]


def test_the_dynamic_directory_is_above_the_static_one_and_the_agents_own_above_both(tmp_path: Path) -> None:
    for name in ("etc", "run", "own"):
        write(tmp_path / name, "gpu.json", name)
        assert found(tmp_path, "etc", "run") == name


def test_a_directory_that_is_also_the_agents_own_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "own", "gpu.json", "own")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    assert found(tmp_path, "own", "link") == "own"


def test_a_conflict_of_others_fails_the_container(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        write(tmp_path / "etc", name, "1")
    with pytest.raises(ContainerFailed, match=r"one\.json .*two\.json"):
        found(tmp_path, "etc")


def test_the_command_line_looks_where_the_specification_says_unless_told_otherwise(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    words = ["--node-name", "n", "--server", "http://api", "--token-file", str(token)]

    assert configuration(parser().parse_args(words)).more_cdi_dirs == (Path("/etc/cdi"), Path("/var/run/cdi"))
    named = configuration(parser().parse_args([*words, "--more-cdi-dir", "/a", "--more-cdi-dir", "/b"]))
    assert named.more_cdi_dirs == (Path("/a"), Path("/b"))
