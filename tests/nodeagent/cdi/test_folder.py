"""The node's directory of CDI files: what is written, what is refused, who may read it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nodeagent.cdi import CdiDevice, CdiFolder, ContainerEdits, Spec, SpecRefused, file_name
from nodeagent.storage import Disk
from tests.nodeagent.cdi.checks import problems_of

DRIVER, UID = "gpu.example.com", "5b0c"
KIND = f"k8s.{DRIVER}/claim"
ENV = ContainerEdits(env=("A=1",))


def spec(*devices: str, kind: str = KIND) -> Spec:
    return Spec.of(kind, tuple(CdiDevice(name=name, container_edits=ENV) for name in devices))


@pytest.fixture
def folder(tmp_path: Path) -> CdiFolder:
    return CdiFolder(tmp_path / "run" / "cdi", Disk())


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("narrow_umask")
def test_a_file_is_named_after_vendor_class_and_claim_and_any_runtime_may_read_it(folder: CdiFolder) -> None:
    folder.write(DRIVER, UID, spec(f"{UID}-gpu-0"))
    (path,) = folder.path.iterdir()
    assert path.name == f"k8s.gpu.example.com-claim_{UID}.json"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, folder.path)] == [0o644, 0o755]

    path.chmod(0o600)  # as a crash leaves it
    folder.write(DRIVER, UID, spec(f"{UID}-gpu-0"))
    assert problems_of(path) == []


def test_what_is_said_already_is_not_written_again(folder: CdiFolder) -> None:
    folder.write(DRIVER, UID, spec(f"{UID}-gpu-0"))
    (path,) = folder.path.iterdir()
    before = path.stat().st_ino

    folder.write(DRIVER, UID, spec(f"{UID}-gpu-0"))
    assert path.stat().st_ino == before

    folder.write(DRIVER, UID, spec(f"{UID}-gpu-1"))
    assert path.stat().st_ino != before


REFUSED = {
    "no devices": (spec(), "produced an invalid CDI spec: devices:"),
    "a name twice": (spec(f"{UID}-a", f"{UID}-a"), f"devices: .*'{UID}-a'"),
    "a device without edits": (
        Spec.of(KIND, (CdiDevice(name=f"{UID}-a", container_edits=ContainerEdits()),)),
        r"devices\[0\].containerEdits:",
    ),
    "another driver's kind": (spec(f"{UID}-a", kind="k8s.nic.example.com/claim"), f"it must be {KIND}"),
    "a name without the claim": (spec("gpu-0"), "'gpu-0'; it must begin with the claim's uid '5b0c'"),
    "a name of another claim": (spec(f"{UID}9-gpu-0"), f"'{UID}9-gpu-0'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_spec_that_must_not_be_is_refused_with_the_reason(folder: CdiFolder, case: str) -> None:
    wrong, reason = REFUSED[case]

    with pytest.raises(SpecRefused, match=reason):
        folder.write(DRIVER, UID, wrong)

    assert not folder.path.exists()


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_spec_that_would_conflict_with_somebody_elses_is_refused(folder: CdiFolder, suffix: str) -> None:
    folder.path.mkdir(parents=True)
    theirs = folder.path / f"theirs{suffix}"
    devices = [{"name": f"{UID}-a", "containerEdits": {"env": ["B=2"]}}]
    document = {"cdiVersion": "0.5.0", "kind": KIND, "devices": devices}
    theirs.write_text(json.dumps(document) if suffix == ".json" else yaml.safe_dump(document))

    with pytest.raises(SpecRefused, match=rf"{KIND}={UID}-a .*theirs{suffix}"):
        folder.write(DRIVER, UID, spec(f"{UID}-a", f"{UID}-b"))
    folder.write(DRIVER, UID, spec(f"{UID}-b"))

    theirs.unlink()
    folder.write(DRIVER, UID, spec(f"{UID}-a"))


DAMAGE = {
    "gone": None,
    "empty": b"",
    "cut off": b'{"cdiVersion": "0.5.0", "ki',
    "zeros": b"\0" * 200,
    "another document": b"{}",
    "no devices": json.dumps({"cdiVersion": "0.5.0", "kind": KIND, "devices": []}).encode(),
    "another device": json.dumps(
        {"cdiVersion": "0.5.0", "kind": KIND, "devices": [{"name": f"{UID}-b", "containerEdits": {"env": ["A=1"]}}]}
    ).encode(),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_file_is_not_taken_for_the_claims(folder: CdiFolder, case: str) -> None:
    wanted = [f"{KIND}={UID}-a"]
    folder.write(DRIVER, UID, spec(f"{UID}-a"))
    assert folder.has(DRIVER, UID, wanted)
    assert folder.has(DRIVER, UID, [*wanted, "vendor.com/gpu=all"]), "what other files define is not looked for here"
    path, content = folder.path / file_name(DRIVER, UID), DAMAGE[case]

    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)

    assert not folder.has(DRIVER, UID, wanted)


def test_only_our_own_files_are_listed_and_only_our_own_half_written_ones_swept(folder: CdiFolder) -> None:
    folder.write(DRIVER, UID, spec(f"{UID}-a"))
    others = {"nvidia.json", "k8s.gpu.example.com-claim_1.yaml", ".nvidia.yaml.tmp"}
    for name in (*others, f".k8s.{DRIVER}-claim_2.json.tmp"):
        (folder.path / name).write_text("{}")
    assert [(file.driver, file.claim_uid) for file in folder.files()] == [(DRIVER, UID)]
    folder.sweep()
    assert {path.name for path in folder.path.iterdir()} == {*others, file_name(DRIVER, UID)}


def test_another_thread_may_make_the_directory_first(folder: CdiFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look for it and its making."""
    folder.path.mkdir(parents=True)
    looks = iter([False])
    monkeypatch.setattr(Path, "is_dir", lambda _path: next(looks, True))

    folder.write(DRIVER, UID, spec(f"{UID}-gpu-0"))

    assert [path.name for path in folder.path.iterdir()] == [f"k8s.gpu.example.com-claim_{UID}.json"]
