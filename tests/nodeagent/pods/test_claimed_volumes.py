"""A pod mounts the folder of its claim, which is made once and goes with its volume, and only then."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claims.kinds.persistent_volumes import FOLDER_FINALIZER, NODE_LABEL
from claims.kinds.storage_classes import LOCAL_PROVISIONER
from nodeagent.pods import claimed_volumes
from nodeagent.pods.claimed_volumes import FOLDER_MODE, ClaimedVolumes
from nodeagent.runtimes.image_keys import PullKeys, no_keys
from nodeagent.runtimes.podman.kernel import bind
from nodeagent.runtimes.protocol import ContainerRequest, Runtime
from nodeagent.storage import DEEPEST, remove_tree
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, container, pod
from tests.nodeagent.runtimes.containers import needs_podman

Document = dict[str, Any]
HANDLE = "pvc-1"


class WithFiles:
    """Simulated containers that would see files of the node; it remembers what each was started with."""

    has_files = True

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.started: list[ContainerRequest] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def start(self, request: ContainerRequest, keys: PullKeys = no_keys) -> None:
        self.started.append(request)
        self._runtime.start(request, keys)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path, wrapped=WithFiles)
    made.start()
    return made


@pytest.fixture
def simulated(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.start()
    return made


def claim(phase: str = "Bound", **meta: Any) -> Document:
    metadata = {"name": "data", "namespace": "default", "uid": "uid-claim", **meta}
    spec = {"volumeName": HANDLE if phase != "Pending" else "", "accessModes": ["ReadWriteOnce"]}
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase},
    }


def volume(node: str = NODE, source: Document | None = None, *, uid: str = "uid-claim", **spec: Any) -> Document:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    filled = {
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": uid},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "persistentVolumeReclaimPolicy": "Delete",
        **(source or {"csi": {"driver": LOCAL_PROVISIONER, "volumeHandle": HANDLE}}),
        **spec,
    }
    meta = {
        "name": HANDLE,
        "uid": "uid-volume",
        "finalizers": ["kubernetes.io/pv-protection"],
        "labels": {NODE_LABEL: node},
    }
    return {
        "kind": "PersistentVolume",
        "apiVersion": "v1",
        "metadata": meta,
        "spec": filled,
        "status": {"phase": "Bound"},
    }


def user(name: str = "p", *, read_only: bool = False) -> Document:
    main = container("main", volumeMounts=[{"name": "v", "mountPath": "/data"}])
    source = {"claimName": "data", "readOnly": read_only}
    return pod(name, main, spec={"volumes": [{"name": "v", "persistentVolumeClaim": source}]})


def folder(machine: Machine) -> Path:
    return machine.folder / "state" / "volumes" / HANDLE


def mounts(machine: Machine) -> list[tuple[str, str, bool]]:
    """(kind, path of the node, whether it is read-only) of the containers' mounts."""
    runtime: Any = machine.agent.runtime
    return [(one.kind, one.path, one.read_only) for request in runtime.started for one in request.mounts]


def stored_volume(machine: Machine) -> Document:
    found = machine.api.find("persistentvolumes", HANDLE, "")
    assert found is not None
    return found


@pytest.mark.parametrize("read_only", [False, True])
def test_a_pod_mounts_the_folder_of_its_claim(machine: Machine, read_only: bool) -> None:
    machine.api.put("persistentvolumeclaims", claim())
    machine.api.put("persistentvolumes", volume())
    machine.api.put("pods", user(read_only=read_only))
    machine.settle()
    assert machine.pod("p")["status"]["phase"] == "Running"
    assert mounts(machine) == [("hostPath", str(folder(machine)), read_only)]
    assert folder(machine).is_dir()
    assert FOLDER_FINALIZER in stored_volume(machine)["metadata"]["finalizers"]


def test_what_is_in_the_folder_outlives_pods_and_agents(machine: Machine) -> None:
    machine.api.put("persistentvolumeclaims", claim())
    machine.api.put("persistentvolumes", volume())
    machine.api.put("pods", user())
    machine.settle()
    (folder(machine) / "kept").write_text("kept")
    machine.api.delete("pods", "p", grace=0)
    machine.settle()
    machine.restart()
    machine.api.put("pods", user("q"))
    machine.settle()
    assert (folder(machine) / "kept").read_text() == "kept"
    assert mounts(machine)[-1][1] == str(folder(machine))


def test_a_pod_waits_for_its_claim_without_an_event(machine: Machine) -> None:
    machine.api.put("persistentvolumeclaims", claim("Pending"))
    machine.api.put("pods", user())
    machine.look()
    assert machine.pod("p")["status"]["phase"] == "Pending"
    assert machine.events("FailedMount") == []
    machine.api.put("persistentvolumeclaims", claim())
    machine.api.put("persistentvolumes", volume())
    machine.settle()
    assert machine.pod("p")["status"]["phase"] == "Running"


WRONG: dict[str, tuple[Callable[[Machine], object], str]] = {
    "no claim": (lambda _machine: None, 'persistentvolumeclaims "data" not found'),
    "no volume": (lambda machine: machine.api.put("persistentvolumeclaims", claim()), f'"{HANDLE}" not found'),
    "another node": (lambda machine: _put(machine, volume("beta")), f"is not on node {NODE}"),
    "another claim": (lambda machine: _put(machine, volume(uid="other")), "is bound to another claim"),
    "another kind": (lambda machine: _put(machine, volume(source={"nfs": {"server": "s", "path": "/"}})), "no folder"),
}


def _put(machine: Machine, wrong: Document) -> None:
    machine.api.put("persistentvolumeclaims", claim())
    machine.api.put("persistentvolumes", wrong)


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_mounted_is_told(machine: Machine, what: str) -> None:
    prepare, why = WRONG[what]
    prepare(machine)
    machine.api.put("pods", user())
    machine.look()
    (told,) = machine.events("FailedMount")
    assert why in told
    assert machine.agent.runtime.runs("uid-p") == {}


def filled(machine: Machine, *, deep: int = 0) -> dict[str, Path]:
    """The volume as a pod of before has left it, with links that lead out of it."""
    top, outside = folder(machine), machine.folder / "outside"
    places = {"top": top, "folder": top / "folder", "file": top / "folder" / "file", "outside": outside}
    places["folder"].mkdir(parents=True)
    for one in (places["file"], outside):
        one.write_text("")
        one.chmod(0o600)
    places["folder"].chmod(0o700)
    (top / "link").symlink_to(outside)
    (top / "gone").symlink_to(top / "nowhere")
    (top / "up").symlink_to(machine.folder)
    inner = top
    for _ in range(deep):
        inner /= "d"
        inner.mkdir()
    return places


def modes(places: dict[str, Path]) -> dict[str, str]:
    return {name: f"{stat.S_IMODE(path.stat().st_mode):o}" for name, path in places.items()}


def grouped(policy: str | None, *, read_only: bool = False) -> Document:
    document = user(read_only=read_only)
    context = {"fsGroup": os.getgid(), **({"fsGroupChangePolicy": policy} if policy else {})}
    document["spec"]["securityContext"] = context
    return document


UNTOUCHED = {"top": "777", "folder": "700", "file": "600", "outside": "600"}
HANDED_OVER = {"top": "2777", "folder": "2770", "file": "660", "outside": "600"}
#: policy, whether the folder itself is the group's already, whether it is mounted read-only -> what becomes of all
GROUPS = {
    "always": ("Always", True, False, HANDED_OVER),
    "without a policy": (None, True, False, HANDED_OVER),
    "where the folder is not the group's": ("OnRootMismatch", False, False, HANDED_OVER),
    "not where it is": ("OnRootMismatch", True, False, {**UNTOUCHED, "top": "2777"}),
    "not to be read only": ("Always", False, True, UNTOUCHED),
}


@pytest.mark.parametrize("case", GROUPS)
def test_a_volume_is_handed_to_the_group_of_its_pod(machine: Machine, case: str) -> None:
    policy, is_own, read_only, expected = GROUPS[case]
    places = filled(machine)
    places["top"].chmod(0o2777 if is_own else 0o777)
    machine.api.put("persistentvolumeclaims", claim())
    machine.api.put("persistentvolumes", {**(document := volume()), "metadata": marked(document)})
    machine.api.put("pods", grouped(policy, read_only=read_only))
    machine.settle()
    assert machine.pod("p")["status"]["phase"] == "Running"
    assert modes(places) == expected


def marked(document: Document) -> Document:
    """Its folder is there."""
    meta: Document = document["metadata"]
    return {**meta, "finalizers": [*meta["finalizers"], FOLDER_FINALIZER]}


def test_folders_too_deep_for_a_group_are_told(machine: Machine) -> None:
    filled(machine, deep=DEEPEST + 1)
    machine.api.put("persistentvolumeclaims", claim())
    machine.api.put("persistentvolumes", {**(document := volume()), "metadata": marked(document)})
    machine.api.put("pods", grouped("Always"))
    machine.look()
    (told,) = machine.events("FailedMount")
    assert f"fsGroup: folders lie more than {DEEPEST} deep" in told


@pytest.mark.parametrize("owner", ["uid-p", "uid-of-a-former-pod", ""])
def test_an_ephemeral_volume_mounts_the_claim_that_was_made_for_its_pod(machine: Machine, owner: str) -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}] if owner else []
    machine.api.put("persistentvolumeclaims", claim(name="p-v", ownerReferences=owners))
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "p-v", "uid": "uid-claim"}
    machine.api.put("persistentvolumes", volume(claimRef=reference))
    main = container("main", volumeMounts=[{"name": "v", "mountPath": "/data"}])
    template = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    source = {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]}
    machine.api.put("pods", pod("p", main, spec=source))
    machine.look()
    if owner == "uid-p":
        machine.settle()
        assert mounts(machine) == [("hostPath", str(folder(machine)), False)]
        return
    (told,) = machine.events("FailedMount")
    assert "PVC default/p-v was not created for pod default/p (pod is not owner)" in told
    assert machine.agent.runtime.runs("uid-p") == {}


@pytest.mark.parametrize(
    ("source", "type_"),
    [
        ({"hostPath": {"path": "/srv/data"}}, ""),
        ({"hostPath": {"path": "/srv/data", "type": "File"}}, "File"),
        ({"local": {"path": "/srv/data"}}, "Directory"),
    ],
)
def test_a_path_of_the_node_is_mounted_as_it_is(machine: Machine, source: Document, type_: str) -> None:
    _put(machine, volume(source=source))
    machine.api.put("pods", user())
    machine.settle()
    runtime: Any = machine.agent.runtime
    ((mount,),) = (request.mounts for request in runtime.started)
    assert (mount.kind, mount.path, mount.host_type) == ("hostPath", "/srv/data", type_)
    assert FOLDER_FINALIZER not in stored_volume(machine)["metadata"]["finalizers"]


@pytest.mark.parametrize(
    ("changes", "is_there", "is_marked"),
    [
        ({"phase": "Released", "deletionTimestamp": "2026-11-30T00:00:00Z"}, False, False),
        ({"phase": "Bound", "deletionTimestamp": "2026-11-30T00:00:00Z"}, True, True),
        ({"phase": "Released"}, True, True),
        ({"phase": "Released", "deletionTimestamp": "2026-11-30T00:00:00Z", "policy": "Retain"}, True, False),
    ],
    ids=["deleted", "still bound", "released", "retained"],
)
def test_a_folder_goes_with_its_deleted_volume_alone(
    machine: Machine, changes: dict[str, str], is_there: bool, is_marked: bool
) -> None:
    _put(machine, volume())
    machine.api.put("pods", user())
    machine.settle()
    machine.api.delete("pods", "p", grace=0)
    machine.settle()
    document = stored_volume(machine)
    document["status"] = {"phase": changes["phase"]}
    document["spec"]["persistentVolumeReclaimPolicy"] = changes.get("policy", "Delete")
    if when := changes.get("deletionTimestamp"):
        document["metadata"]["deletionTimestamp"] = when
    machine.api.put("persistentvolumes", document)
    machine.look()
    machine.look()
    assert folder(machine).is_dir() is is_there
    assert (FOLDER_FINALIZER in stored_volume(machine)["metadata"]["finalizers"]) is is_marked


def test_a_folder_whose_volume_is_unknown_stays_unless_it_is_empty(machine: Machine) -> None:
    """It may be of a volume that was retained; or an agent was killed when it had made it."""
    folders = folder(machine).parent
    for name in ("pvc-kept", "pvc-empty"):
        (folders / name).mkdir(parents=True)
    (folders / "pvc-kept" / "file").touch()
    machine.look()
    assert [path.name for path in folders.iterdir()] == ["pvc-kept"]


def release(machine: Machine) -> None:
    """The claim is gone, and its volume shall go."""
    machine.api.delete("pods", "p", grace=0)
    machine.api.delete("persistentvolumeclaims", "data", grace=0)
    document = stored_volume(machine)
    document["status"] = {"phase": "Released"}
    document["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    document["metadata"]["finalizers"] = [FOLDER_FINALIZER]
    machine.api.put("persistentvolumes", document)


class Killed(BaseException):
    """What kill -9 is."""


STEPS = ("mkdir", "chmod", "mark", "remove", "unmark")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_an_agent_that_is_killed_leaves_neither_folder_nor_mark_without_the_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    _put(machine, volume())
    machine.api.put("pods", user())
    if step in ("remove", "unmark"):
        machine.settle()
        (folder(machine) / "deep" / "er").mkdir(parents=True)
        release(machine)

    def dies(original: Callable[..., Any]) -> Callable[..., Any]:
        def killed(*args: Any, **kwargs: Any) -> Any:
            of_folder = args and str(args[0]).endswith(HANDLE)
            if not (of_folder or step in ("mark", "unmark")):
                return original(*args, **kwargs)
            if when == "after":
                original(*args, **kwargs)
            raise Killed

        return killed

    with monkeypatch.context() as patched:
        if step in ("mkdir", "chmod"):
            patched.setattr(Path, step, dies(getattr(Path, step)))
        elif step == "remove":
            patched.setattr(claimed_volumes, "remove_tree", dies(remove_tree))
        else:
            patched.setattr(ClaimedVolumes, "_mark", dies(ClaimedVolumes._mark))
        with pytest.raises(Killed):
            machine.look()
    machine.restart()
    machine.settle()
    if step in ("remove", "unmark"):
        assert not folder(machine).exists()
        assert machine.api.find("persistentvolumes", HANDLE, "") is None
        return
    assert machine.pod("p")["status"]["phase"] == "Running"
    assert stat.S_IMODE(folder(machine).stat().st_mode) == FOLDER_MODE
    assert FOLDER_FINALIZER in stored_volume(machine)["metadata"]["finalizers"]


def test_a_folder_that_is_lost_is_told_and_no_pod_starts_with_an_empty_one(machine: Machine) -> None:
    _put(machine, volume())
    machine.api.put("pods", user())
    machine.settle()
    machine.api.delete("pods", "p", grace=0)
    machine.settle()
    folder(machine).rmdir()  # a new disk
    machine.restart()
    machine.api.put("pods", user("q"))
    machine.look()
    (why,) = machine.events("FailedMount")
    assert "is gone from node" in why
    assert machine.agent.runtime.runs("uid-q") == {}
    machine.api.delete("pods", "q", grace=0)
    release_all(machine)
    machine.settle()
    assert machine.api.find("persistentvolumes", HANDLE, "") is None


def release_all(machine: Machine) -> None:
    machine.api.put("pods", user())
    release(machine)


def test_what_a_privileged_container_has_mounted_into_its_volume_stays(machine: Machine, tmp_path: Path) -> None:
    """With mountPropagation Bidirectional the mount is the node's, and outlives the container."""
    needs_podman()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    _put(machine, volume())
    machine.api.put("pods", user())
    machine.settle()
    for at in (folder(machine) / "mounted", folder(machine) / "mounted again"):
        at.mkdir()
        bind(outside, at)
    release(machine)
    machine.settle()
    assert not folder(machine).exists()
    assert (outside / "file").read_text() == "kept"


@pytest.mark.parametrize("is_running", [True, False])
def test_a_folder_waits_for_the_containers_that_use_it_and_not_for_pods_that_have_ended(
    machine: Machine, is_running: bool
) -> None:
    _put(machine, volume())
    machine.api.put("pods", {**user(), "spec": {**user()["spec"], "restartPolicy": "Never"}})
    machine.settle()
    if not is_running:
        machine.agent.runtime.end("uid-p", "main", grace_seconds=0)
        machine.settle()
    document = stored_volume(machine)
    document["status"] = {"phase": "Released"}
    document["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    document["metadata"]["finalizers"] = [FOLDER_FINALIZER]
    machine.api.put("persistentvolumes", document)
    machine.look()
    assert folder(machine).is_dir() is is_running


def test_a_folder_that_cannot_be_removed_keeps_its_volume_and_an_event_says_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put(machine, volume())
    machine.api.put("pods", user())
    machine.settle()

    def refused(_folder: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(claimed_volumes, "remove_tree", refused)
        release(machine)
        machine.look()
        machine.look()
    (why,) = machine.events("VolumeFailedDelete")
    assert "Operation not permitted" in why
    assert stored_volume(machine)["metadata"]["finalizers"] == [FOLDER_FINALIZER]
    machine.settle()
    assert machine.api.find("persistentvolumes", HANDLE, "") is None


def test_a_pod_that_waits_long_for_its_claim_says_so(machine: Machine) -> None:
    machine.api.put("persistentvolumeclaims", claim("Pending"))
    machine.api.put("pods", user())
    machine.look()
    assert machine.events("FailedMount") == []
    machine.clock.now += claimed_volumes.PATIENCE + 1
    machine.look()
    (why,) = machine.events("FailedMount")
    assert "is not bound" in why


def test_a_simulated_container_makes_no_folder(simulated: Machine) -> None:
    _put(simulated, volume())
    simulated.api.put("pods", user())
    simulated.settle()
    assert simulated.pod("p")["status"]["phase"] == "Running"
    assert not folder(simulated).exists()
    assert FOLDER_FINALIZER not in stored_volume(simulated)["metadata"]["finalizers"]
