"""The dynamic linker's cache, read as ldconfig itself reads it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from nodeagent.drivers.nvml.edits import driver_mounts, libraries, library_path
from tests.nodeagent.drivers.nvml.machines import VERSION, GpuFiles

CACHE = Path("/etc/ld.so.cache")
X86_64 = 0x0303


def cache_of(*entries: tuple[str, int, str], before: bytes = b"") -> bytes:
    """A cache in glibc's form, written independently of the reader. entries: (name, flags, path)."""
    start = 48 + 24 * len(entries)
    texts = b""
    rows = b""
    for name, flags, path in entries:
        places = []
        for text in (name, path):
            places.append(start + len(texts))
            texts += text.encode() + b"\0"
        rows += struct.pack("<iIIIQ", flags, *places, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<IIIIIII", len(entries), len(texts), 2, 0, 0, 0, 0)
    return before + header + rows + texts


def test_this_machines_cache_is_read_as_ldconfig_prints_it() -> None:
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    if not (CACHE.exists() and Path(ldconfig).exists()):
        pytest.skip("this machine has no linker cache of glibc")
    printed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    wanted = [(line.split(" (")[0].strip(), line.split(" => ")[1]) for line in printed if " => " in line]
    assert [(name, path) for name, _, path in libraries(CACHE)] == wanted
    assert wanted


def test_a_cache_behind_one_of_the_older_form_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(cache_of(("libcuda.so.1", X86_64, "/x"), before=b"ld.so-1.7.0\0" + bytes(36)))
    assert list(libraries(tmp_path / "cache")) == [("libcuda.so.1", 0x0300, "/x")]


def test_a_library_of_another_architecture_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    entries = [("libcuda.so.1", 0x0003, "/lib32/libcuda.so.1"), ("libcuda.so.1", X86_64, "/lib64/libcuda.so.1")]
    (tmp_path / "cache").write_bytes(cache_of(*entries))
    assert library_path(tmp_path / "cache", "libcuda.so.1") == "/lib64/libcuda.so.1"
    assert library_path(tmp_path / "cache", "libnvcuvid.so.1") == ""


@pytest.mark.parametrize("content", [b"", b"something else"])
def test_a_file_that_is_no_cache_knows_no_library(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cache").write_bytes(content)
    assert list(libraries(tmp_path / "cache")) == []


def test_libraries_in_an_unusual_place_are_found_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    files = GpuFiles(tmp_path)
    root = files.roots.driver
    (root / "opt/nvidia").mkdir(parents=True)
    files.libraries.rename(root / "opt/nvidia/lib")
    (root / "etc").mkdir()
    (root / "etc/ld.so.cache").write_bytes(cache_of(("libcuda.so.1", X86_64, "/opt/nvidia/lib/libcuda.so.1")))
    hosts = {mount.host_path for mount in driver_mounts(root, VERSION, "/lib")}
    assert str(root / f"opt/nvidia/lib/libcuda.so.{VERSION}") in hosts
