"""`manciple why` and `manciple devices` as a user types them, also through kubectl; a second Manciple is the cluster.

Each runs in a process of its own, without a home, and with settings that would break an installation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from manciple.mirror import devices, why
from manciple.mirror.sources import CLAIM, POD
from tests.e2e.kubectl import find_kubectl
from tests.manciple.api.server import ApiServer
from tests.manciple.mirror.clusters import NAMESPACE, claim, cluster, pod, slice_of
from tests.manciple.mirror.replay import Document, Replay, kubeconfig

ROOT = Path(__file__).parents[3]
#: What an installation on this machine may have: none of it is this command's.
ELSEWHERE = {
    "MANCIPLE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "MANCIPLE_REDIS_URL": "redis://127.0.0.1:1",
    "MANCIPLE_HOME": "/nowhere/home",
    "MANCIPLE_FEATURE_GATES": "NoSuchGate=true",
}
PLURALS = {
    "Namespace": ("v1", "namespaces"),
    "Node": ("v1", "nodes"),
    "ResourceSlice": ("resource.k8s.io/v1", "resourceslices"),
    "DeviceClass": ("resource.k8s.io/v1", "deviceclasses"),
    "ResourceClaim": ("resource.k8s.io/v1", "resourceclaims"),
    "Pod": ("v1", "pods"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the command runs: its working directory, its home and its folder of temporary files."""
    made = tmp_path / "work"
    made.mkdir()
    return made


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return typed([sys.executable, "-m", "manciple", *words], folder, environment)


def typed(words: list[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MANCIPLE_", "KUBE", "DJANGO"))}
    at = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        words,
        cwd=folder,
        env={**own, **at, **ELSEWHERE, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def fill(server: ApiServer, objects: Mapping[str, list[Document]]) -> None:
    with server.client() as api:
        for kind, (version, plural) in PLURALS.items():
            for one in objects.get(plural, ()):
                meta = {
                    name: value for name, value in one["metadata"].items() if name in ("name", "namespace", "labels")
                }
                root = "api" if version == "v1" else "apis"
                scope = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
                document = {**one, "apiVersion": version, "kind": kind, "metadata": meta}
                answer = api.post(f"/{root}/{version}{scope}/{plural}", json=document)
                assert answer.status_code in (201, 409), answer.text


@pytest.fixture
def lab(api_server: ApiServer) -> ApiServer:
    fill(
        api_server,
        cluster(
            ("resourceclaims", claim("big", count=3)),
            ("pods", pod("train", "big")),
            ("resourceclaims", claim("small")),
            ("pods", pod("fits", "small")),
        ),
    )
    return api_server


@pytest.mark.django_db(transaction=True)
def test_another_manciple_is_explained_and_nothing_is_kept(lab: ApiServer, folder: Path) -> None:
    told = run(folder, "why", "pod", f"{NAMESPACE}/train", "--kubeconfig", str(lab.kubeconfig))
    assert (told.returncode, told.stderr) == (0, "")
    assert "needs 3 on one node" in told.stdout
    assert "Next step: Ask for 2 devices" in told.stdout
    answered = run(folder, "why", "pod", "train", "-n", NAMESPACE, "-o", "json", KUBECONFIG=str(lab.kubeconfig))
    document = json.loads(answered.stdout)
    assert (document["kind"], document["state"], document["cause"]["wanted"]) == ("Explanation", "Waiting", 3)
    assert document["steps"][0]["nodeName"] in ("n1", "n2")
    assert not list(folder.iterdir())


@pytest.mark.django_db(transaction=True)
def test_kubectl_runs_it_as_a_plugin(lab: ApiServer, folder: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "bin" / "kubectl-manciple"
    plugin.parent.mkdir()
    start = "import sys; from manciple.processes.command_line import kubectl_plugin; sys.exit(kubectl_plugin())"
    plugin.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{start}' \"$@\"\n")
    plugin.chmod(0o700)
    # Two files: the first has the server's address and no context, as people's do who keep them apart.
    whole = yaml.safe_load(lab.kubeconfig.read_text())
    apart = tmp_path / "apart"
    apart.write_text(
        yaml.safe_dump({"contexts": whole.pop("contexts"), "current-context": whole.pop("current-context")})
    )
    rest = tmp_path / "rest"
    rest.write_text(yaml.safe_dump(whole))
    environment = {"PATH": f"{plugin.parent}:{os.environ['PATH']}", "KUBECONFIG": f"{rest}:{apart}"}

    def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
        return typed([find_kubectl(), "manciple", *words], folder, environment)

    told = kubectl("why", "pod", "fits", "-n", NAMESPACE)
    assert (told.returncode, told.stderr) == (0, "")
    assert "It fits on `n1`, `n2`; `default-scheduler` has not placed it for" in told.stdout
    head, *rows = kubectl("devices", "--node", "n1", "-o", "wide").stdout.splitlines()
    assert head.split() == ["NODE", "POOL", "DEVICE", "CLASS", "MODEL", "STATE", "CLAIM", "POD", "DRIVER", "ATTRIBUTES"]
    assert [row.split()[:6] for row in rows[:2]] == [
        ["n1", "n1", "gpu-0", "gpu", "H100", "free"],
        ["n1", "n1", "gpu-1", "gpu", "H100", "free"],
    ]
    assert rows[-1].split() == ["gpu", "H100", "2", "2", "0", "0"]
    assert "why" in kubectl().stdout
    assert kubectl("up").returncode != 0


@pytest.mark.django_db(transaction=True)
def test_who_may_read_nothing_is_told_so(lab: ApiServer, folder: Path) -> None:
    alice = str(lab.kubeconfig_of("alice"))
    told = run(folder, "why", "pod", f"{NAMESPACE}/train", "--kubeconfig", alice)
    assert told.returncode == 1
    assert 'User "alice" cannot get resource "pods"' in told.stderr
    missing = run(folder, "why", "claim", f"{NAMESPACE}/none", "--kubeconfig", str(lab.kubeconfig))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert '"none" not found' in missing.stderr


def test_devices_of_a_recorded_cluster_as_json(folder: Path, tmp_path: Path) -> None:
    with Replay(cluster(), dra="v1beta1") as server:
        path = server.kubeconfig(tmp_path)
        told = run(folder, "devices", "-o", "json", "--class", "gpu", KUBECONFIG=str(path))
    document = json.loads(told.stdout)
    assert document["kind"] == "DeviceReport"
    assert document["items"][0]["holders"] == []
    assert document["stock"] == [{"class": "gpu", "model": "H100", "devices": 4, "free": 4}]
    assert document["notReadable"] == []


MISTAKES = {
    "no such kind": (["why", "node", "n1"], 2, "neither pod nor claim"),
    "no name": (["why", "pod"], 2, "name one object"),
    "two names": (["why", "pod", "a", "b"], 2, "name one object"),
    "too many parts": (["why", "pod", "a/b/c"], 2, "is not NAMESPACE/NAME"),
    "no kubeconfig": (["why", "pod", "a"], 1, "there is no kubeconfig"),
    "a missing kubeconfig": (["devices", "--kubeconfig", "/nowhere/k"], 1, "/nowhere/k cannot be read"),
    "a format of the other": (["why", "pod", "a", "-o", "wide"], 2, "invalid choice"),
    "no kind": (["why", "train"], 2, "write `pod train`"),
    "no number of seconds": (["devices", "--request-timeout", "soon"], 2, '"soon" is not a positive number of seconds'),
    "no seconds at all": (["devices", "--request-timeout", "0"], 2, "is not a positive number of seconds"),
    "seconds without an end": (["devices", "--request-timeout", "inf"], 2, "is not a positive number of seconds"),
}


@pytest.mark.parametrize("phrase", MISTAKES)
def test_mistakes_are_told(
    phrase: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, status, said = MISTAKES[phrase]
    monkeypatch.setenv("HOME", str(folder))
    for name in [name for name in os.environ if name.startswith("KUBE")]:
        monkeypatch.delenv(name)
    command = {"why": why, "devices": devices}[words[0]]
    if status == 2:  # argparse ends the process
        with pytest.raises(SystemExit):
            command.main(words[1:])
    else:
        assert command.main(words[1:]) == status
    assert said in capsys.readouterr().err


#: (change of the kubeconfig, what is typed) -> what is said
KUBECONFIGS: dict[str, tuple[dict[str, object], list[str], str]] = {
    "no context is the current one": ({"current-context": ""}, [], "name one with --context (lab)"),
    "no such context": ({}, ["--context", "prod"], 'has no context "prod"; there are lab'),
    "no contexts": ({"contexts": [], "current-context": ""}, [], "has no context: name another file"),
    "nothing listens there": (
        {"clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:1"}}]},
        [],
        "get nodes`",
    ),
}


@pytest.mark.parametrize("phrase", KUBECONFIGS)
def test_what_is_wrong_with_a_kubeconfig_is_told_with_what_to_do(
    phrase: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, words, said = KUBECONFIGS[phrase]
    path = tmp_path / "my config"
    path.write_text(yaml.safe_dump({**kubeconfig("http://127.0.0.1:1", {"token": "t"}), **changed}))
    for command, first in ((why, ["pod", "a"]), (devices, [])):
        assert _failing(command, [*first, "--kubeconfig", str(path), *words]) == 1
        assert said in (told := capsys.readouterr().err)
        assert ("--kubeconfig '" in told) is (phrase == "nothing listens there")  # it can be pasted


def _failing(command: ModuleType, words: list[str]) -> int:
    """Without Django, which the process of the tests has set up already."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("manciple.mirror.throwaway.prepare", lambda: None)
        status: int = command.main(words)
    return status


MISSING = {
    "a slip": ("trian", NAMESPACE, "there is train"),
    "another namespace": ("train", "team-x", "kubectl get pods -n team-x"),
    "nothing like it": ("zzz", NAMESPACE, f"kubectl get pods -n {NAMESPACE}"),
}


@pytest.mark.parametrize("phrase", MISSING)
def test_a_pod_that_is_not_there_is_told_with_what_may_be_meant(
    phrase: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, namespace, said = MISSING[phrase]
    with Replay(cluster(("pods", pod("train")))) as server:
        words = ["pod", f"{namespace}/{name}", "--kubeconfig", str(server.kubeconfig(tmp_path))]
        assert _failing(why, words) == 1
    told = capsys.readouterr().err
    assert f'"{name}" not found' in told
    assert said in told


def test_who_may_not_list_pods_is_told_only_that_it_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Replay(cluster(("pods", pod("train"))), forbidden=frozenset({"pods"})) as server:
        assert _failing(why, ["pod", "trian", "--kubeconfig", str(server.kubeconfig(tmp_path))]) == 1
    assert "name another namespace" in capsys.readouterr().err


def test_a_reader_that_stops_before_the_end_is_no_error(folder: Path, tmp_path: Path) -> None:
    many = [("resourceslices", slice_of(f"more-{number}", 100)) for number in range(20)]
    with Replay(cluster(*many)) as server:
        line = f"'{sys.executable}' -m manciple devices --kubeconfig '{server.kubeconfig(tmp_path)}' | head -c 4"
        told = typed(["bash", "-o", "pipefail", "-c", line], folder, {})
    assert (told.returncode, told.stdout, told.stderr) == (0, "NODE", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pod", "a/b"], (POD, "a", "b")),
        (["pods", "b"], (POD, "", "b")),
        (["po/b"], (POD, "", "b")),
        (["claim", "a/b"], (CLAIM, "a", "b")),
        (["resourceclaims.resource.k8s.io", "b"], (CLAIM, "", "b")),
    ],
)
def test_objects_are_named_as_for_kubectl(words: list[str], expected: tuple[object, str, str]) -> None:
    assert why.read_object(words) == expected
