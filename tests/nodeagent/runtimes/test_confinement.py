"""What keeps a container inside: nothing that a manifest says becomes an option of podman, a path, or a power."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman import confinement
from nodeagent.runtimes.podman.confinement import Confinement, check_reference, folder_of, needs_image_user, user_of
from nodeagent.runtimes.podman.starting import Place, run_arguments
from nodeagent.runtimes.protocol import Addresses, ContainerRequest, Security, container_request
from tests.nodeagent.objects import pod
from tests.nodeagent.pods.given_sources import GivenSources
from tests.nodeagent.runtimes.containers import Node


def request(container: Mapping[str, Any] | None = None, **spec: Any) -> ContainerRequest:
    document = pod("p", {"name": "main", "image": "busybox", **(container or {})}, spec=spec)
    manifest = msgspec.convert(document, Pod)
    return container_request(
        manifest,
        manifest.spec.containers[0],
        role="main",
        attempt=0,
        cdi_devices=(),
        claims=(),
        addresses=Addresses(host="192.0.2.1", pod="10.1.2.3"),
        source=GivenSources(),
    )


def context(**fields: Any) -> ContainerRequest:
    return request({"securityContext": fields})


@pytest.fixture
def held(tmp_path: Path) -> Confinement:
    (tmp_path / "images" / "busybox").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "images" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "seccomp").mkdir()
    (tmp_path / "seccomp" / "mine.json").write_text("{}")
    return Confinement(rootfs=(tmp_path / "images",), seccomp=tmp_path / "seccomp", pids=77)


# Images.

REFERENCES = (
    "busybox",
    "busybox:1.36",
    "registry.example.com:5000/team/app:v1.2-rc_3",
    "docker.io/library/a__b--c.d@sha256:" + "0123456789abcdef" * 4,
    "localhost/manciple-test:1",
    "[2001:db8::1]:5000/app",
    "EXAMPLE.com/app",
)
NO_REFERENCES = {
    "an option": "--privileged",
    "a short option": "-v/:/host",
    "an option with a value": "--volume=/:/host",
    "nothing": "",
    "a path": "/etc/passwd",
    "a path above": "../../etc",
    "an archive": "docker-archive:/etc/shadow",
    "a directory": "dir:/var/lib",
    "a layout beside the agent": "oci:state",
    "another transport": "docker://busybox",
    "the store": "containers-storage:busybox",
    "a space": "busybox --privileged",
    "a line": "busybox\n--privileged",
    "capitals": "Busybox",
    "too much": "a" * 5000,
    "what would take long to read": "a-" * 500 + "!",
}


@pytest.mark.parametrize("image", REFERENCES)
def test_a_reference_is_an_image(image: str) -> None:
    check_reference(image)
    assert run_arguments(request({"image": image}), PLACE)[-2:] == ["--", image]


@pytest.mark.parametrize("case", NO_REFERENCES)
def test_anything_else_is_not_and_never_reaches_podman(held: Confinement, case: str) -> None:
    began = time.process_time()
    with pytest.raises(ContainerFailed) as refused:
        held.refuse(request({"image": NO_REFERENCES[case], "args": ["busybox", "sh"]}))
    assert refused.value.reason == "InvalidImageName"
    assert time.process_time() - began < 0.5


def test_only_directories_that_the_nodes_owner_named_are_images(held: Confinement, tmp_path: Path) -> None:
    inside = f"rootfs:{tmp_path}/images/busybox"
    assert folder_of(inside, held.rootfs) == tmp_path / "images" / "busybox"
    for outside in ("/", "/etc", f"{tmp_path}/secret", f"{tmp_path}/images/../secret", f"{tmp_path}/images/out"):
        with pytest.raises(ContainerFailed, match="--rootfs-dir"):
            folder_of(f"rootfs:{outside}", held.rootfs)
    with pytest.raises(ContainerFailed, match=r"--rootfs-dir \(none\)"):
        folder_of(inside, ())


@pytest.mark.parametrize("image", ["rootfs:srv", "rootfs:", "rootfs:/srv/a:O,upperdir=/etc"])
def test_a_directory_is_a_full_path_and_no_more(held: Confinement, image: str) -> None:
    with pytest.raises(ContainerFailed) as refused:
        held.refuse(request({"image": image}))
    assert refused.value.reason == "InvalidImageName"


# Words of the manifest.

PLACE = Place(
    name="c",
    labels={},
    log_file=Path("/l"),
    message_file=Path("/m"),
    hosts_file=Path("/h"),
    network=None,
)
HOSTILE = "--privileged"


def test_no_word_of_a_manifest_is_an_option(tmp_path: Path) -> None:
    """Each stands behind one of ours that takes a value, or behind `--`."""
    wanted = request(
        {
            "command": [HOSTILE],
            "args": [HOSTILE],
            "env": [{"name": HOSTILE, "value": HOSTILE}],
            "workingDir": HOSTILE,
            "lifecycle": {"stopSignal": HOSTILE},
        },
        hostname=HOSTILE,
    )
    words = run_arguments(wanted, PLACE)
    free = [words[i - 1] for i, word in enumerate(words[: words.index("--")]) if word == HOSTILE]
    assert set(free) <= {"--workdir", "--stop-signal", "--hostname"}
    assert "--env" in words
    assert words[words.index("--env") + 1] == f"{HOSTILE}={HOSTILE}"
    of_folder = run_arguments(wanted, replace(PLACE, folder=tmp_path))
    assert of_folder[-4:] == ["--", f"{tmp_path}:O", HOSTILE, HOSTILE]


PATHS: dict[str, tuple[dict[str, Any], str]] = {
    "a message among mount options": ({"terminationMessagePath": "/x:rw,suid,dev"}, "terminationMessagePath"),
    "a message nowhere": ({"terminationMessagePath": "x"}, "terminationMessagePath"),
    "a mount among mount options": ({"volumeMounts": [{"name": "v", "mountPath": "/x:dev"}]}, "mountPath of volume v"),
    "a mount nowhere": ({"volumeMounts": [{"name": "v", "mountPath": "../x"}]}, "mountPath of volume v"),
    "a directory of another process": ({"workingDir": "/proc/self/fd/8"}, "workingDir must not lie in /proc"),
}


@pytest.mark.parametrize("case", PATHS)
def test_paths_that_mean_more_than_a_path_are_refused(held: Confinement, case: str) -> None:
    fields, named = PATHS[case]
    with pytest.raises(ContainerFailed, match=named):
        held.refuse(request(fields, volumes=[{"name": "v", "emptyDir": {}}]))


# Users.

USERS: dict[str, tuple[Security, str, str]] = {
    "nothing said": (Security(), "", ""),
    "a user": (Security(user=7), "", "7"),
    "a user and a group": (Security(user=7, group=8), "", "7:8"),
    "a group beside the image's user": (Security(group=8), "5:6", "5:8"),
    "a group beside the image's user by name": (Security(group=8), "app", "app:8"),
    "a group beside root": (Security(group=8), "", "0:8"),
    "not root, as the image says": (Security(non_root=True), "5:6", "5:6"),
    "not root, in another group": (Security(non_root=True, group=8), "5", "5:8"),
}
ROOTS: dict[str, tuple[Security, str, str]] = {
    "the image says nothing": (Security(non_root=True), "", "image will run as root"),
    "the image says 0": (Security(non_root=True), "0:7", "image will run as root"),
    "the image says 000": (Security(non_root=True), "000", "image will run as root"),
    "the image says a name": (Security(non_root=True), "nobody", r"non-numeric user \(nobody\)"),
    "a group alone": (Security(non_root=True, group=8), "", "image will run as root"),
    "the manifest says 0": (Security(non_root=True, user=0), "", "runAsUser breaks non-root policy"),
}


@pytest.mark.parametrize("case", USERS)
def test_a_container_runs_as_whom_the_manifest_says_or_else_the_image(case: str) -> None:
    security, of_image, expected = USERS[case]
    assert user_of(security, of_image=of_image) == expected


@pytest.mark.parametrize("case", ROOTS)
def test_who_must_not_be_root_is_not(case: str) -> None:
    security, of_image, message = ROOTS[case]
    with pytest.raises(ContainerFailed, match=message):
        user_of(security, of_image=of_image)
    assert needs_image_user(security) is (security.user is None)


# Powers.

GIVEN: dict[str, tuple[ContainerRequest, set[str], set[str]]] = {
    "nothing said": (request(), {"no-new-privileges", "--pids-limit 77"}, {"seccomp", "--privileged", "--cap-add"}),
    "escalation allowed": (context(allowPrivilegeEscalation=True), set(), {"no-new-privileges"}),
    "escalation refused": (context(allowPrivilegeEscalation=False), {"no-new-privileges"}, set()),
    "privileged": (context(privileged=True), {"--privileged"}, {"no-new-privileges"}),
    "SYS_ADMIN": (context(capabilities={"add": ["SYS_ADMIN"]}), {"--cap-add SYS_ADMIN"}, {"no-new-privileges"}),
    "dropped": (context(capabilities={"drop": ["ALL"]}), {"--cap-drop ALL", "no-new-privileges"}, {"--cap-add"}),
    "no seccomp": (context(seccompProfile={"type": "Unconfined"}), {"seccomp=unconfined"}, set()),
    "the default seccomp": (context(seccompProfile={"type": "RuntimeDefault"}), set(), {"seccomp"}),
    "a profile of the node": (
        context(seccompProfile={"type": "Localhost", "localhostProfile": "mine.json"}),
        {"mine.json"},
        {"unconfined"},
    ),
    "a pod's word": (
        request(securityContext={"seccompProfile": {"type": "Unconfined"}}),
        {"seccomp=unconfined"},
        set(),
    ),
    "read-only": (context(readOnlyRootFilesystem=True), {"--read-only --read-only-tmpfs=false"}, set()),
    "groups": (
        request(securityContext={"supplementalGroups": [5], "fsGroup": 6}),
        {"--group-add 5 --group-add 6"},
        set(),
    ),
}


@pytest.mark.parametrize("case", GIVEN)
def test_powers_are_given_as_the_manifest_says(held: Confinement, case: str) -> None:
    asked, there, not_there = GIVEN[case]
    words = " ".join(held.options(asked))
    assert all(word in words for word in there), words
    assert not any(word in words for word in not_there), words


REFUSED: dict[str, tuple[ContainerRequest, str]] = {
    "a profile elsewhere": (
        context(seccompProfile={"type": "Localhost", "localhostProfile": "../secret/x"}),
        "seccomp profile",
    ),
    "a profile that is not there": (
        context(seccompProfile={"type": "Localhost", "localhostProfile": "other.json"}),
        "seccomp profile",
    ),
    "AppArmor without AppArmor": (context(appArmorProfile={"type": "RuntimeDefault"}), "AppArmor is not enabled"),
    "SELinux without SELinux": (context(seLinuxOptions={"level": "s0:c1"}), "SELinux is not enabled"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_this_machine_cannot_enforce_is_refused(
    held: Confinement, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(confinement, "APP_ARMOR", Path("/nonexistent"))
    monkeypatch.setattr(confinement, "SE_LINUX", Path("/nonexistent"))
    asked, message = REFUSED[case]
    with pytest.raises(ContainerFailed, match=message):
        tuple(held.options(asked))


def test_profiles_are_named_where_the_machine_has_them(
    held: Confinement, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "enabled").write_text("Y\n")
    monkeypatch.setattr(confinement, "APP_ARMOR", tmp_path / "enabled")
    monkeypatch.setattr(confinement, "SE_LINUX", tmp_path / "enabled")
    profile = {"type": "Localhost", "localhostProfile": "mine"}
    assert "apparmor=mine" in tuple(held.options(context(appArmorProfile=profile)))
    assert "apparmor=unconfined" in tuple(held.options(context(appArmorProfile={"type": "Unconfined"})))
    words = tuple(held.options(context(seLinuxOptions={"level": "s0:c1,c2", "type": "t"})))
    assert {"label=type:t", "label=level:s0:c1,c2"} <= set(words)


def test_kernel_parameters_of_the_node_are_refused_unless_its_owner_allows_them(held: Confinement) -> None:
    def setting(name: str) -> ContainerRequest:
        return request(securityContext={"sysctls": [{"name": name, "value": "1"}]})

    held.refuse(setting("net.ipv4.tcp_syncookies"))
    with pytest.raises(ContainerFailed, match=r'forbidden sysctl: "kernel[.]msgmax" not allowlisted') as refused:
        held.refuse(setting("kernel.msgmax"))
    assert refused.value.reason == "SysctlForbidden"
    Confinement(seccomp=held.seccomp, pids=1, sysctls=frozenset({"kernel.msgmax"})).refuse(setting("kernel.msgmax"))


UNGRANTED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a user namespace": ({}, {"hostUsers": False}, "hostUsers: false"),
    "another runtime": ({}, {"runtimeClassName": "kata"}, 'RuntimeClass "kata" is not known here'),
    "another system": ({}, {"os": {"name": "windows"}}, "this node runs linux, not windows"),
    "strict groups": ({}, {"securityContext": {"supplementalGroupsPolicy": "Strict"}}, "supplementalGroupsPolicy"),
    "an unmasked /proc": ({"securityContext": {"procMount": "Unmasked"}}, {}, "procMount: only Default"),
    "the host's processes": ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, {}, "windowsOptions"),
}


@pytest.mark.parametrize("case", UNGRANTED)
def test_what_is_asked_for_and_not_to_be_had_is_told_and_never_ignored(case: str) -> None:
    container, spec, message = UNGRANTED[case]
    (told,) = request(container, **spec).unserved
    assert message in told


# In a real container.

LOOK = """
for name in NoNewPrivs Seccomp CapEff CapBnd; do grep "^$name:" /proc/self/status; done
cat /sys/fs/cgroup/pids/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids.max
echo keys $(cat /proc/keys | wc -l)
touch /proc/sys/kernel/hostname 2>/dev/null && echo writable || echo read-only
echo devices $(ls /dev | grep -c -E '^(kmsg|mem|loop0|sda|vda)$')
stat -c '%g %a' /disk /memory
touch /disk/made && stat -c %g /disk/made
"""
#: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, SYS_CHROOT, SETFCAP: of them
#: podman's list says which; none may be beyond.
DEFAULT_CAPABILITIES = 0x00000000800405FB


def test_a_container_gets_little_by_itself(node: Node) -> None:
    mounts = [{"name": "disk", "mountPath": "/disk"}, {"name": "memory", "mountPath": "/memory"}]
    volumes = [{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]
    spec = {"volumes": volumes, "securityContext": {"fsGroup": 4321, "runAsGroup": 3000}}

    lines = node.output(LOOK, container={"volumeMounts": mounts}, spec=spec)

    status = dict(line.split(":\t") for line in lines[:4])
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapEff"], 16) & ~DEFAULT_CAPABILITIES == 0
    assert int(status["CapBnd"], 16) & ~DEFAULT_CAPABILITIES == 0
    assert lines[4:] == ["2048", "keys 0", "read-only", "devices 0", "4321 2777", "4321 2777", "4321"]
