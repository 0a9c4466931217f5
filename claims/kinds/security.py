"""With which rights containers run. Source: k8s.io/api/core/v1."""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import Int64, Value, pb

PACKAGE = "io.k8s.api.core.v1"


class Capabilities(Value):
    """POSIX capabilities given and taken."""

    add: Annotated[tuple[str, ...], pb(1)] = ()
    drop: Annotated[tuple[str, ...], pb(2)] = ()


class SELinuxOptions(Value):
    """An SELinux label."""

    user: Annotated[str, pb(1)] = ""
    role: Annotated[str, pb(2)] = ""
    type: Annotated[str, pb(3)] = ""
    level: Annotated[str, pb(4)] = ""


class WindowsSecurityContextOptions(Value):
    """What holds only on Windows."""

    gmsa_credential_spec_name: Annotated[str | None, pb(1)] = None
    gmsa_credential_spec: Annotated[str | None, pb(2)] = None
    run_as_user_name: Annotated[str | None, pb(3)] = None
    host_process: Annotated[bool | None, pb(4)] = None


class SeccompProfile(Value):
    """`type`: Localhost (then with a profile's path), RuntimeDefault or Unconfined."""

    type: Annotated[str, pb(1)] = ""
    localhost_profile: Annotated[str | None, pb(2)] = None


class AppArmorProfile(Value):
    """`type`: Localhost (then with a profile's name), RuntimeDefault or Unconfined."""

    type: Annotated[str, pb(1)] = ""
    localhost_profile: Annotated[str | None, pb(2)] = None


class SecurityContext(Value):
    """The rights of one container; they win over the pod's."""

    capabilities: Annotated[Capabilities | None, pb(1)] = None
    privileged: Annotated[bool | None, pb(2)] = None
    se_linux_options: Annotated[SELinuxOptions | None, pb(3)] = None
    windows_options: Annotated[WindowsSecurityContextOptions | None, pb(10)] = None
    run_as_user: Annotated[Int64 | None, pb(4)] = None
    run_as_group: Annotated[Int64 | None, pb(8)] = None
    run_as_non_root: Annotated[bool | None, pb(5)] = None
    read_only_root_filesystem: Annotated[bool | None, pb(6)] = None
    allow_privilege_escalation: Annotated[bool | None, pb(7)] = None
    proc_mount: Annotated[str | None, pb(9)] = None
    seccomp_profile: Annotated[SeccompProfile | None, pb(11)] = None
    app_armor_profile: Annotated[AppArmorProfile | None, pb(12)] = None


class Sysctl(Value):
    """A kernel parameter."""

    name: Annotated[str, pb(1)] = ""
    value: Annotated[str, pb(2)] = ""


class PodSecurityContext(Value):
    """The rights of all containers of a pod."""

    se_linux_options: Annotated[SELinuxOptions | None, pb(1)] = None
    windows_options: Annotated[WindowsSecurityContextOptions | None, pb(8)] = None
    run_as_user: Annotated[Int64 | None, pb(2)] = None
    run_as_group: Annotated[Int64 | None, pb(6)] = None
    run_as_non_root: Annotated[bool | None, pb(3)] = None
    supplemental_groups: Annotated[tuple[Int64, ...], pb(4)] = ()
    supplemental_groups_policy: Annotated[str | None, pb(12)] = None
    fs_group: Annotated[Int64 | None, pb(5)] = None
    sysctls: Annotated[tuple[Sysctl, ...], pb(7)] = ()
    fs_group_change_policy: Annotated[str | None, pb(9)] = None
    seccomp_profile: Annotated[SeccompProfile | None, pb(10)] = None
    app_armor_profile: Annotated[AppArmorProfile | None, pb(11)] = None
    se_linux_change_policy: Annotated[str | None, pb(13)] = None
