"""Which file a device comes from: the static and the dynamic directory, conflicts, files that are not valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from nodeagent.cdi.files import CdiRegistry

KIND = "vendor.com/gpu"


class Folders:
    """A static directory and a dynamic one."""

    def __init__(self, root: Path) -> None:
        self.static, self.dynamic = root / "etc", root / "run"
        self.registry = CdiRegistry([self.static, self.dynamic])

    def environment(self, *devices: str) -> list[str]:
        return [line for edit in self.registry.edits([f"{KIND}={d}" for d in devices]) for line in edit.env]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def write(path: Path, *devices: str, says: str = "", common: str = "") -> None:
    document = {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [{"name": d, "containerEdits": {"env": [f"{d.upper()}={says or path.name}"]}} for d in devices],
        "containerEdits": {"env": [f"ALL={common}"]} if common else {},
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document) if path.suffix == ".json" else yaml.safe_dump(document))


def test_devices_of_both_directories_are_found_in_json_and_yaml(folders: Folders) -> None:
    write(folders.static / "a.json", "a")
    write(folders.dynamic / "b.yaml", "b")

    assert folders.environment("b", "a") == ["B=b.yaml", "A=a.json"]


def test_the_dynamic_directory_has_the_last_word(folders: Folders) -> None:
    write(folders.static / "a.json", "a", "b", says="static")
    write(folders.dynamic / "a.json", "a", says="dynamic")

    assert folders.environment("a", "b") == ["A=dynamic", "B=static"]


def test_two_definitions_of_the_same_precedence_are_unresolvable(folders: Folders) -> None:
    write(folders.dynamic / "one.json", "a", "b")
    write(folders.dynamic / "two.yaml", "a", "c")

    with pytest.raises(LookupError, match=r"vendor.com/gpu=a is defined by both .*one.json and .*two.yaml; remove one"):
        folders.environment("a")
    assert folders.environment("b", "c") == ["B=one.json", "C=two.yaml"], "the other devices of the files are fine"


def test_a_conflict_stays_one_though_the_higher_directory_has_the_device(folders: Folders) -> None:
    write(folders.static / "one.json", "a")
    write(folders.static / "two.json", "a")
    write(folders.dynamic / "three.json", "a")

    with pytest.raises(LookupError, match=r"one.json .*two.json"):
        folders.environment("a")


def test_a_conflict_is_over_when_one_file_is_gone(folders: Folders) -> None:
    write(folders.dynamic / "one.json", "a")
    write(folders.dynamic / "two.json", "a")
    with pytest.raises(LookupError):
        folders.environment("a")

    (folders.dynamic / "one.json").unlink()

    assert folders.environment("a") == ["A=two.json"]


def test_the_edits_of_a_spec_come_once_before_its_first_device(folders: Folders) -> None:
    write(folders.static / "a.json", "a", "b", common="a", says="1")
    write(folders.dynamic / "c.json", "c", common="c", says="1")

    assert folders.environment("b", "c", "a") == ["ALL=a", "B=1", "ALL=c", "C=1", "A=1"]


def test_a_device_that_nobody_defines_is_named(folders: Folders) -> None:
    write(folders.static / "a.json", "a")

    with pytest.raises(LookupError, match=r"unresolvable CDI devices vendor.com/gpu=b, vendor.com/gpu=c"):
        folders.environment("a", "b", "c")


def test_a_file_that_is_not_valid_defines_nothing_and_is_named_with_its_problem(folders: Folders) -> None:
    write(folders.static / "a.json", "a")
    write(folders.static / "b.json", "b", "b")

    assert folders.environment("a") == ["A=a.json"]
    with pytest.raises(LookupError, match=r"b.json is not a valid CDI file: devices: .*'b'"):
        folders.environment("b")


IGNORED = {
    "a draft": "a.json.tmp",
    "a text": "a.txt",
    "YAML by another name": "a.yml",
    "a subdirectory": "below/a.json",
}


@pytest.mark.parametrize("case", IGNORED)
def test_what_is_no_file_of_the_directory_is_not_read(folders: Folders, case: str) -> None:
    path = folders.static / IGNORED[case]
    path.parent.mkdir(parents=True)
    write(path, "a")

    with pytest.raises(LookupError):
        folders.environment("a")


def test_a_directory_called_like_a_file_does_no_harm(folders: Folders) -> None:
    (folders.static / "a.json").mkdir(parents=True)
    write(folders.static / "b.json", "b")

    assert folders.environment("b") == ["B=b.json"]


def test_a_changed_file_is_read_again(folders: Folders) -> None:
    write(folders.dynamic / "a.json", "a", says="old")
    assert folders.environment("a") == ["A=old"]

    write(folders.dynamic / "a.json", "a", says="newer")

    assert folders.environment("a") == ["A=newer"]


def test_directories_that_do_not_exist_define_nothing(folders: Folders) -> None:
    assert folders.registry.edits([]) == []
    with pytest.raises(LookupError, match="unresolvable"):
        folders.environment("a")
