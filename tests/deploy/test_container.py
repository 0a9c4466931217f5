"""The Containerfile is built with podman and the image started as its user, on a root that it cannot write.

No registry is asked: the base is an empty root with this machine's own Debian (/usr) mounted into it, and the
dependencies are those of the tests.
"""

from __future__ import annotations

import io
import os
import subprocess
import sysconfig
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from nodeagent.runtimes.podman import program
from tests.e2e.processes import ROOT, Process
from tests.e2e.test_wheel import build_wheels
from tests.nodeagent.runtimes.containers import needs_podman

pytestmark = pytest.mark.e2e

#: Whom the image runs as.
NOBODY = 10001
FOLDERS = ("usr", "etc", "tmp", "proc", "sys", "dev", "opt", "var/lib", "run")
LINKS = ("bin", "lib", "lib64", "sbin")
DEBIAN = ("-v", "/usr:/usr:ro")
PODMAN = ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs")


def podman(*arguments: str, given: bytes | None = None) -> str:
    done = subprocess.run([*PODMAN, *arguments], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def empty_debian() -> bytes:
    """A root whose programs are in a /usr that is mounted."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        for name in LINKS:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(link)
    return packed.getvalue()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    needs_podman()
    name, folder = f"localhost/manciple-{uuid.uuid4().hex[:12]}", tmp_path_factory.mktemp("image")
    build_wheels(folder)
    (folder / "requirements.txt").touch()
    podman("import", "-", f"{name}-base", given=empty_debian())
    try:
        podman(
            *("build", "--quiet", "--isolation=chroot", *DEBIAN, "--force-rm", "--layers=false"),
            *("--build-arg", f"BASE={name}-base", "--build-arg", "PACKAGES=", "--tag", name),
            *("--file", str(ROOT / "deploy" / "container" / "Containerfile"), str(folder)),
        )
        yield name
    finally:
        subprocess.run([*PODMAN, "rmi", "--force", name, f"{name}-base"], capture_output=True, check=False)


@pytest.mark.long
def test_the_image_runs_as_nobody_on_a_root_that_it_cannot_write(image: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    here = [*DEBIAN, "-v", f"{sysconfig.get_paths()['purelib']}:/dependencies:ro", "-e", "PYTHONPATH=/dependencies"]
    name = f"manciple-{uuid.uuid4().hex[:12]}"
    command = [
        *(*PODMAN, "run", "--rm", "--name", name),
        *("--network=host", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", *program.limits()),
        *("--tmpfs", "/tmp", "-v", f"{home}:/var/lib/manciple", *here, image),
        *("up", "--api", "127.0.0.1:0", "--web", "127.0.0.1:0", "--nodes", "1", "--mixed-nodes", "0"),
    ]
    process = Process(command).start()
    try:
        web = process.line(r"Dashboard +(http\S+)").group(1)
        assert httpx.get(f"{web}/readyz").status_code == 200
        assert podman("exec", name, "id", "-u").strip() == str(NOBODY)
        refused = subprocess.run([*PODMAN, "exec", name, "touch", "/opt/x"], capture_output=True, check=False)
        assert b"Read-only file system" in refused.stderr
        assert "--context" in podman("exec", name, "/opt/manciple/bin/manciple", "mirror", "--help")
        podman("stop", "--time", "30", name)
        assert process.wait() == 0
    finally:
        subprocess.run([*PODMAN, "rm", "--force", name], capture_output=True, check=False)
        process.kill()


@pytest.mark.long
def test_the_image_holds_no_settings_and_no_keys(image: str) -> None:
    told = podman("image", "inspect", "--format", "{{.Config.User}} {{.Config.Env}}", image)
    assert told.startswith("10001:10001 ")
    assert "SECRET" not in told
    assert Path(ROOT / "deploy" / "container" / "Containerfile").read_text().count("FROM") == 2
