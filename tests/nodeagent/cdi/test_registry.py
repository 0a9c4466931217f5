"""Which file a device comes from: the static and the dynamic directory, conflicts, files that are not valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from nodeagent.cdi import CdiRegistry

KIND = "vendor.com/gpu"


class Folders:
    """A static directory and a dynamic one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry = CdiRegistry([root / "static", root / "dynamic"])

    def environment(self, *devices: str) -> list[str]:
        return [line for edit in self.registry.edits([f"{KIND}={d}" for d in devices]) for line in edit.env]

    def write(self, name: str, *devices: str, says: str = "", common: str = "") -> None:
        path = self.root / name
        document = {
            "cdiVersion": "0.5.0",
            "kind": KIND,
            "devices": [{"name": d, "containerEdits": {"env": [f"{d.upper()}={says or path.name}"]}} for d in devices],
            "containerEdits": {"env": [f"ALL={common}"]} if common else {},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document) if path.suffix == ".json" else yaml.safe_dump(document))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_devices_of_both_directories_are_found_and_the_dynamic_one_has_the_last_word(folders: Folders) -> None:
    folders.write("static/a.json", "a", "b", says="static")
    folders.write("dynamic/b.yaml", "c", "a", says="dynamic")
    assert folders.environment("b", "a", "c") == ["B=static", "A=dynamic", "C=dynamic"]

    folders.write("dynamic/b.yaml", "a", says="changed, so read again")
    assert folders.environment("a") == ["A=changed, so read again"]


def test_two_definitions_of_the_same_precedence_are_unresolvable_until_one_file_is_gone(folders: Folders) -> None:
    folders.write("static/one.json", "a", "b")
    folders.write("static/two.yaml", "a", "c")
    assert folders.environment("b", "c") == ["B=one.json", "C=two.yaml"], "the other devices of the files are fine"
    with pytest.raises(LookupError, match=r"vendor.com/gpu=a .*one.json .*two.yaml"):
        folders.environment("a")
    folders.write("dynamic/three.json", "a")
    with pytest.raises(LookupError, match=r"one.json .*two.yaml"):
        folders.environment("a")
    for gone in ("static/one.json", "dynamic/three.json"):
        (folders.root / gone).unlink()
    assert folders.environment("a") == ["A=two.yaml"]


def test_the_edits_of_a_spec_come_once_before_its_first_device(folders: Folders) -> None:
    folders.write("static/a.json", "a", "b", common="a", says="1")
    folders.write("dynamic/c.json", "c", common="c", says="1")
    assert folders.environment("b", "c", "a") == ["ALL=a", "B=1", "ALL=c", "C=1", "A=1"]


def test_a_file_that_is_not_valid_defines_nothing_and_is_named_with_its_problem(folders: Folders) -> None:
    folders.write("static/a.json", "a")
    folders.write("static/b.json", "b", "b")
    assert folders.environment("a") == ["A=a.json"]
    with pytest.raises(LookupError, match=r"vendor.com/gpu=b, vendor.com/gpu=c.*b.json .*devices: .*'b'"):
        folders.environment("a", "b", "c")


@pytest.mark.parametrize("name", ["a.json.tmp", "a.txt", "a.yml", "below/a.json"])
def test_what_is_no_file_of_the_directory_is_not_read(folders: Folders, name: str) -> None:
    (folders.root / "static" / "b.json").mkdir(parents=True)  # a directory called like a file does no harm
    folders.write("static/c.json", "c")
    folders.write(f"static/{name}", "a")
    assert folders.environment("c") == ["C=c.json"]
    with pytest.raises(LookupError):
        folders.environment("a")


def test_directories_that_do_not_exist_define_nothing(folders: Folders) -> None:
    assert folders.registry.edits([]) == []
    with pytest.raises(LookupError):
        folders.environment("a")
