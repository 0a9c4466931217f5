"""The `manciple` command: its verbs are those of manage.py and of the agent, and shells complete them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from manciple import layout, memory
from manciple.processes import command_line, completion
from tests.architecture.test_documentation import commands
from tests.e2e.processes import ROOT

#: Make pictures of a checkout's documentation.
OF_A_CHECKOUT = {"screenshots"}


@pytest.fixture(autouse=True)
def _the_environment_stays() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_the_garbage_collector_is_asked_seldom_while_a_program_loads() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        assert command_line.main(["--version"]) == 0
        assert gc.get_threshold()[:2] == (memory.YOUNG, memory.OLDER)
        gc.set_threshold(50_000)
        assert command_line.main(["--version"]) == 0
        assert gc.get_threshold()[0] == 50_000
    finally:
        gc.set_threshold(*before)


def test_every_command_of_manage_is_a_verb() -> None:
    assert set(commands()) - OF_A_CHECKOUT <= {verb.name for verb in command_line.verbs()}


def test_every_verb_is_found_by_its_words_with_hyphens_too() -> None:
    for verb in command_line.verbs():
        assert command_line.find([*verb.words, "--help"]) is verb
        assert command_line.find(verb.name.replace("_", "-").split()) is verb


def test_help_tells_of_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main([]) == 0
    told = capsys.readouterr().out
    assert [verb.name for verb in command_line.verbs() if f"  {verb.name} " not in told] == []


MISTAKES = {
    "a letter too many": (["contorllers"], "did you mean `manciple controllers`?"),
    "half of a verb": (["node"], "node join, node run"),
    "nothing like it": (["xyzzy"], "`manciple --help` lists all verbs"),
}


@pytest.mark.parametrize(("words", "told"), MISTAKES.values(), ids=MISTAKES)
def test_an_unknown_verb_is_refused_with_what_may_be_meant(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("words", [["up", "--home", "lab"], ["--home=lab", "up"]], ids=["behind", "before"])
def test_the_home_may_stand_anywhere(words: list[str]) -> None:
    assert command_line.take_options(words) == ["up"]
    assert os.environ["MANCIPLE_HOME"] == str(Path("lab").resolve())


def test_a_home_that_cannot_be_written_is_told_of_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert command_line.main(["up", "--home", str(tmp_path / "file" / "home")]) == 2
    assert "cannot be written (Not a directory): name another with --home DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        ("node join", "--ca-hash"),
        ("node run", "--node-ip"),
        ("driver check", "--call-seconds"),
        ("driver serve", "--registrar-dir"),
        ("driver controller", "--kubeconfig"),
    ],
)
def test_a_program_gets_what_stands_behind_its_verb(verb: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command_line.main([*verb.split(), "--help"])
    assert option in capsys.readouterr().out


COMPLETED: dict[str, tuple[list[str], set[str]]] = {
    "the verbs": ([""], {"up", "node", "check_invariants", "--version"}),
    "the beginning of one": (["reind"], {"reindex"}),
    "the second word": (["node", ""], {"join", "run"}),
    "options of a program": (["node", "join", "--ca"], {"--ca-hash", "--ca-file"}),
    "options of Django's commands": (["up", "--m"], {"--mixed-nodes"}),
    "actions": (["audit", "ex"], {"export"}),
    "options behind an action": (["audit", "export", "--sin"], {"--since"}),
}


def test_bash_completes_verbs_actions_and_options(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(completion.script("bash"))
    asked = ""
    for words, _ in COMPLETED.values():
        typed = " ".join(f"'{word}'" for word in words)
        asked += f"COMP_WORDS=(manciple {typed}); COMP_CWORD={len(words)}; COMPREPLY=(); _manciple; "
        asked += 'echo "${COMPREPLY[*]}"\n'
    done = subprocess.run(
        ["bash", "-c", f"source {tmp_path / 'script'}\n{asked}"], capture_output=True, text=True, check=True
    )
    told = [set(line.split()) for line in done.stdout.splitlines()]
    assert done.stderr == ""
    for (name, (words, wanted)), found in zip(COMPLETED.items(), told, strict=True):
        assert wanted <= found, name
        assert all(one.startswith(words[-1]) for one in found), name


def test_other_shells_are_told_the_same_verbs() -> None:
    assert completion.script("zsh").startswith("autoload -U +X bashcompinit")
    fish = completion.script("fish").splitlines()
    assert "complete -c manciple -n '__fish_use_subcommand' -a up " in "\n".join(fish)
    assert any("__fish_seen_subcommand_from join' -l ca-hash" in line for line in fish)


def test_the_version_of_a_checkout_is_that_of_the_project_file() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == layout.UNINSTALLED


REFUSED_SETTINGS = {
    "a locked gate": (
        ["manage.py", "up"],
        "MANCIPLE_FEATURE_GATES",
        "DRAAdminAccess=false",
        "DRAAdminAccess",
    ),
    "an unknown group": (
        ["manage.py", "up"],
        "MANCIPLE_RUNTIME_CONFIG",
        "nonsense/v1=true",
        "unknown api groups nonsense",
    ),
    "a gate without another": (
        ["-m", "manciple", "worker"],
        "MANCIPLE_FEATURE_GATES",
        "DynamicResourceAllocation=false,DRADeviceTaints=true",
        "DRADeviceTaints needs DynamicResourceAllocation",
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("words", "setting", "value", "told"), REFUSED_SETTINGS.values(), ids=REFUSED_SETTINGS)
def test_wrong_settings_end_the_start_with_one_line(
    tmp_path: Path, words: list[str], setting: str, value: str, told: str
) -> None:
    environment = {**os.environ, "MANCIPLE_HOME": str(tmp_path), setting: value}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=environment, cwd=ROOT, timeout=60
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("manciple: ")
    assert told in line
