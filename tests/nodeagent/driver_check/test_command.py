"""`manciple driver check` as an author of a driver runs it: drivers in processes of their own, of two makes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeagent.driver_check import command
from nodeagent.driver_check.checks import CHECKS
from tests.nodeagent.serving.test_process import ROOT
from tests.plugin_driver.orders import Order, Orders, Report, write_orders

DOCUMENTATION = (ROOT / "docs" / "how-to" / "driver-check.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "commands.md").read_text()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("d")  # the path of a socket has room for 107 characters
    for name in ("plugins_registry", "cdi", "scratch"):
        (made / name).mkdir()
    return made


def check(
    folder: Path, driver: Sequence[str], name: str, *options: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, str]]:
    """The exit status, and the verdict of each check."""
    socket = folder / "plugins_registry" / f"{name}-reg.sock"
    words = [str(socket), "--cdi-dir", str(folder / "cdi"), "--run", " ".join(driver), "--json", *options]
    status = command.main(words)
    report = json.loads(capsys.readouterr().out)
    assert report["driver"] in (name, "")
    return status, {result["id"]: result["verdict"] for result in report["results"]}


def of_our_kit(folder: Path) -> list[str]:
    """The driver of the documentation."""
    (folder / "settings.yaml").write_text(f"{{root: {folder}/scratch, slots: 2}}")
    return [
        *(sys.executable, "-m", "nodeagent.serve", "scratch_driver:ScratchDriver", "--node-name", "{node}"),
        *("--settings", f"{folder}/settings.yaml", "--kubeconfig", "{kubeconfig}", "--cdi-dir", "{cdi_dir}"),
        *("--registrar-dir", f"{folder}/plugins_registry", "--plugin-dir", f"{folder}/p"),
    ]


def on_the_public_protocol(folder: Path, orders: Orders) -> list[str]:
    """A driver that shares no code with ours, and writes protobuf."""
    write_orders(folder / "orders", orders)
    return [
        *(sys.executable, "-m", "tests.plugin_driver", "--driver", "ext.example.com", "--node", "{node}"),
        *("--kubeconfig", "{kubeconfig}", "--plugin-dir", str(folder), "--cdi-dir", "{cdi_dir}"),
        *("--orders", f"{folder}/orders", "--journal", f"{folder}/journal", "--describe"),
    ]


def failed(verdicts: dict[str, str]) -> set[str]:
    return {name for name, verdict in verdicts.items() if verdict == "failed"}


def test_the_driver_of_the_documentation_passes_killed_and_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "docs" / "examples"))
    monkeypatch.chdir(ROOT)
    wanted = ["restart.killed", "restart.stopped", "prepare.metadata", "prepare.unallocated"]
    only = [word for name in wanted for word in ("--only", name)]
    status, verdicts = check(folder, of_our_kit(folder), "scratch.example.com", *only, capsys=capsys)
    assert failed(verdicts) == set()
    assert {verdicts[name] for name in wanted} == {"passed"}
    assert status == 0
    assert list((folder / "cdi").iterdir()) == []


HEALTHY = Report(pool="node-1", device="gpu-0", health=1)
POOLS: dict[str, tuple[tuple[str, ...], ...]] = {"node-1": (("gpu-0", "gpu-1"),)}


def test_a_driver_that_speaks_protobuf_passes_everything_but_restarts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = on_the_public_protocol(folder, Orders(pools=POOLS, health=(HEALTHY,)))
    names = [check.id for check in CHECKS if not check.id.startswith("restart.")]
    only = [word for name in names for word in ("--only", name)]
    status, verdicts = check(folder, driver, "ext.example.com", *only, capsys=capsys)
    assert failed(verdicts) == set()
    assert [name for name, verdict in verdicts.items() if verdict == "skipped"] == ["slices.restored"]
    assert status == 0


def test_a_driver_that_fails_is_told_of_with_its_last_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "driver.py").write_text("import sys; sys.exit('no GPU here')")
    driver = [sys.executable, str(folder / "driver.py")]
    socket = folder / "plugins_registry" / "x-reg.sock"
    assert command.main([str(socket), "--run", " ".join(driver), "--wait", "0.3", "--only", "slices.published"]) == 1
    told = capsys.readouterr()
    assert "FAILED  registration.info" in told.out
    assert "nothing listens there" in told.out
    assert "What to do: serve pluginregistration.Registration" in told.out
    assert "skipped slices.published" in told.out
    assert "no GPU here" in told.err


MISTAKES = {
    "a check that is not there": (["--only", "prepare.thrice"], "there is no check prepare.thrice"),
    "no address": (["--listen", "here"], "'here'"),
    "no such program": (["--run", "/nowhere/driver"], "/nowhere/driver"),
    "parameters that are not there": (["--parameters", "/nowhere/p.yaml"], "/nowhere/p.yaml"),
}


@pytest.mark.parametrize(("words", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_command_line_is_no_failure_of_the_driver(
    words: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(folder / "x.sock"), "--wait", "0.1", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_checks_are_listed_and_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    for one in CHECKS:
        assert f"{one.id} " in listed
        assert f"| `{one.id.partition('.')[0]}` | " in DOCUMENTATION


def test_every_option_is_documented() -> None:
    options = {name for action in command.parser()._actions for name in action.option_strings if name.startswith("--")}
    chapter = REFERENCE.partition("### `manciple driver check`")[2].partition("\n##")[0]
    assert {name for name in options - {"--help"} if f"`{name}" not in chapter} == set()


def test_an_order_of_the_tests_breaks_that_driver_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driver = on_the_public_protocol(folder, Orders(pools=POOLS, unprepare=Order(mode="omit")))
    status, verdicts = check(folder, driver, "ext.example.com", "--only", "unprepare.answers", capsys=capsys)
    assert failed(verdicts) == {"unprepare.answers"}
    assert status == 1
