"""What keeps a container inside: whose image it may have, as whom it runs, which profiles and limits hold it.

Every word here comes from whoever wrote the pod. An image is a reference or a directory that the node's owner named for
that, never a path of their own choice, nor an option of podman. What this machine cannot enforce is refused.
Source: distribution/reference (the grammar of images), kubernetes pkg/kubelet/kuberuntime/security_context.go,
pkg/kubelet/sysctl, pkg/security/apparmor/validate.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from claims.kinds.pod_security import safe_sysctls
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.protocol import ContainerRequest, Security

#: An image that is a directory of this machine: "rootfs:/path". Containers see it through an overlay of their own.
ROOTFS = "rootfs:"
#: Of a container that asks for what it does not get.
CONFIG_ERROR = "CreateContainerConfigError"

APP_ARMOR = Path("/sys/module/apparmor/parameters/enabled")
SE_LINUX = Path("/sys/fs/selinux/enforce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What the node's owner allows. seccomp: the folder of Localhost profiles. pids: processes of one container."""

    rootfs: tuple[Path, ...] = ()
    seccomp: Path
    pids: int
    sysctls: frozenset[str] = safe_sysctls()

    def refuse(self, request: ContainerRequest) -> None:
        """Raises: ContainerFailed for what must never be started."""
        folder_of(request.image, self.rootfs)
        for name, _ in request.sysctls:
            if name not in self.sysctls:
                raise ContainerFailed(f'forbidden sysctl: "{name}" not allowlisted', reason="SysctlForbidden")
        if request.working_dir.startswith("/proc"):
            raise ContainerFailed("workingDir must not lie in /proc", reason=CONFIG_ERROR)
        for what, path in (("terminationMessagePath", request.message_path), *_targets(request)):
            if path and (not path.startswith("/") or ":" in path):
                raise ContainerFailed(f"{what} {path}: must be absolute and without a colon", reason=CONFIG_ERROR)

    def options(self, request: ContainerRequest) -> Iterator[str]:
        """Of `podman run`. Raises: ContainerFailed for what this machine cannot enforce."""
        security = request.security
        yield from ("--pids-limit", str(self.pids))
        yield from ("--privileged",) if security.privileged else ()
        yield from ("--read-only", "--read-only-tmpfs=false") if security.read_only_root else ()
        for group in security.groups:
            yield from ("--group-add", str(group))
        # podman gives what is added to whoever runs, root or not: so only that is named which the manifest names.
        for option, names in (("--cap-add", security.add), ("--cap-drop", security.drop)):
            for name in names:
                yield from (option, name)
        for word in (*_privileges(security), *self._seccomp(security), *_app_armor(security), *_se_linux(security)):
            yield from ("--security-opt", word)

    def _seccomp(self, security: Security) -> Iterator[str]:
        """podman's own profile holds where nothing else is said."""
        profile = security.seccomp
        if profile.kind == "Unconfined":
            yield "seccomp=unconfined"
        elif profile.kind == "Localhost":
            yield f"seccomp={self._profile_file(profile.name)}"

    def _profile_file(self, name: str) -> Path:
        path = (self.seccomp / name).resolve()
        if not name or not path.is_relative_to(self.seccomp.resolve()) or not path.is_file():
            raise ContainerFailed(f'seccomp profile "{name}" is not in {self.seccomp}', reason=CONFIG_ERROR)
        return path


def _targets(request: ContainerRequest) -> Iterator[tuple[str, str]]:
    return ((f"mountPath of volume {mount.volume}", mount.target) for mount in request.mounts)


def _privileges(security: Security) -> Iterator[str]:
    if security.no_new_privileges:
        yield "no-new-privileges"


def _app_armor(security: Security) -> Iterator[str]:
    profile, enabled = security.app_armor, _says(APP_ARMOR, "Y")
    if profile.kind in ("RuntimeDefault", "Localhost") and not enabled:
        raise ContainerFailed("Cannot enforce AppArmor: AppArmor is not enabled on the host", reason=CONFIG_ERROR)
    if profile.kind == "Unconfined" and enabled:
        yield "apparmor=unconfined"
    elif profile.kind == "Localhost":
        yield f"apparmor={profile.name}"


def _se_linux(security: Security) -> Iterator[str]:
    if security.se_linux and not SE_LINUX.exists():
        raise ContainerFailed("seLinuxOptions: SELinux is not enabled on this node", reason=CONFIG_ERROR)
    yield from (f"label={name}:{value}" for name, value in security.se_linux)


def _says(path: Path, word: str) -> bool:
    try:
        return path.read_text().strip() == word
    except OSError:
        return False


# Images ---------------------------------------------------------------------------------------------------------------


_COMPONENT = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = rf"(?:{_COMPONENT}(?:\.{_COMPONENT})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?"
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:{_DOMAIN}/)?(?P<name>{_PATH}(?:/{_PATH})*)(?::[\w][\w.-]{{0,127}})?(?:@[A-Za-z0-9+._-]+:[0-9A-Fa-f]{{32,}})?",
    re.ASCII,
)
_LONGEST = 1024
#: What podman takes for a place of this machine where a tag follows it: "oci:name" is a directory.
_TRANSPORTS = frozenset(
    {"containers-storage", "dir", "docker", "docker-archive", "docker-daemon", "oci", "oci-archive", "ostree", "sif"}
)


def check_reference(image: str) -> None:
    """Raises: ContainerFailed for what names no image, but an option or a file."""
    match = _REFERENCE.fullmatch(image) if len(image) <= _LONGEST else None
    if match is None or (match["name"] in _TRANSPORTS and image.startswith(f"{match['name']}:")):
        shown = image[:_LONGEST]
        raise ContainerFailed(
            f'Failed to apply default image tag "{shown}": couldn\'t parse image name "{shown}": '
            "invalid reference format",
            reason="InvalidImageName",
        )


def folder_of(image: str, allowed: Sequence[Path]) -> Path | None:
    """The directory that `image` is; None for one of a registry. Raises: ContainerFailed for what is not allowed."""
    if not image.startswith(ROOTFS):
        check_reference(image)
        return None
    given = Path(image.removeprefix(ROOTFS))
    if not given.is_absolute():
        why = "give the directory's full path, as in rootfs:/srv/busybox"
    elif ":" in str(given):
        why = "podman cannot use a directory with a colon in its name"
    elif not any((folder := given.resolve()).is_relative_to(one.resolve()) for one in allowed):
        why = f"it is not below a directory that this node's agent was given with --rootfs-dir ({_listed(allowed)})"
    else:
        return folder
    raise ContainerFailed(f"image {image}: {why}", reason="InvalidImageName")


def _listed(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders)) or "none"


# Users ----------------------------------------------------------------------------------------------------------------


def needs_image_user(security: Security) -> bool:
    """Whether it matters as whom the image runs by itself."""
    return security.user is None and (security.non_root or security.group is not None)


def user_of(security: Security, *, of_image: str) -> str:
    """As podman takes it: "user:group", "" for the image's own. of_image: what the image says, where that matters.

    Raises: ContainerFailed where it must not be root, and is or may be.
    """
    if security.user is None and not needs_image_user(security):
        return ""
    named = of_image.partition(":")[0] or "0"
    user = named if security.user is None else str(security.user)
    if security.non_root:
        _refuse_root(user, of_image=security.user is None)
    if security.group is not None:
        return f"{user}:{security.group}"
    return user if security.user is not None else of_image


def _refuse_root(user: str, *, of_image: bool) -> None:
    """Raises: ContainerFailed."""
    if not user.isdecimal():
        why = f"container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"
    elif int(user):
        return
    elif of_image:
        why = "container has runAsNonRoot and image will run as root"
    else:
        why = "container's runAsUser breaks non-root policy"
    raise ContainerFailed(f"{why}; set runAsUser to another user than 0", reason=CONFIG_ERROR)
