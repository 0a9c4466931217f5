"""What a manifest says of the rights of a container, as a runtime is asked for them. Pure.

Where a manifest says nothing, a container gets less than Kubernetes gives it: no new privileges (a setuid program gains
nothing) unless `allowPrivilegeEscalation` is true, and the runtime's seccomp profile. What no runtime of this agent can
grant or enforce is told in words (`ungranted`): the container is then not started.
Source: kubernetes pkg/securitycontext/util.go, pkg/kubelet/kuberuntime/security_context.go, pkg/kubelet/sysctl.
"""

from __future__ import annotations

from collections.abc import Iterator

from claims.kinds.containers import (
    AppArmorProfile,
    Container,
    EphemeralContainer,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    SELinuxOptions,
)
from claims.kinds.pods import Pod
from nodeagent.runtimes.protocol import ConfinementProfile, Security


def security_of(pod: Pod, container: Container) -> Security:
    """The container's own word counts before the pod's."""
    of_pod, own = pod.spec.security_context or PodSecurityContext(), container.security_context or SecurityContext()
    capabilities = own.capabilities
    groups = (*of_pod.supplemental_groups, *(() if of_pod.fs_group is None else (of_pod.fs_group,)))
    return Security(
        user=of_pod.run_as_user if own.run_as_user is None else own.run_as_user,
        group=of_pod.run_as_group if own.run_as_group is None else own.run_as_group,
        groups=groups,
        fs_group=of_pod.fs_group,
        non_root=bool(of_pod.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root),
        privileged=bool(own.privileged),
        read_only_root=bool(own.read_only_root_filesystem),
        no_new_privileges=not _may_escalate(own),
        add=capabilities.add if capabilities else (),
        drop=capabilities.drop if capabilities else (),
        seccomp=_profile(own.seccomp_profile or of_pod.seccomp_profile),
        app_armor=_profile(own.app_armor_profile or of_pod.app_armor_profile),
        se_linux=_se_linux(own.se_linux_options or of_pod.se_linux_options),
    )


def _may_escalate(own: SecurityContext) -> bool:
    """A privileged container, and one with SYS_ADMIN, can anyway."""
    added = own.capabilities.add if own.capabilities else ()
    can = bool(own.privileged) or not {"SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"}.isdisjoint(added)
    return can or own.allow_privilege_escalation is True


def _profile(given: SeccompProfile | AppArmorProfile | None) -> ConfinementProfile:
    if given is None:
        return ConfinementProfile()
    return ConfinementProfile(kind=given.type, name=given.localhost_profile or "")


def _se_linux(given: SELinuxOptions | None) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    parts = {"user": given.user, "role": given.role, "type": given.type, "level": given.level}
    return tuple((name, value) for name, value in parts.items() if value)


def ungranted(pod: Pod, container: Container) -> Iterator[str]:
    """What is asked for and not to be had here, in words for the pod's owner."""
    spec, of_pod = pod.spec, pod.spec.security_context or PodSecurityContext()
    if spec.host_users is False:
        yield "hostUsers: false: this node's containers have no user namespaces of their own"
    if spec.share_process_namespace:
        yield "shareProcessNamespace: sharing processes between containers is not supported here"
    if spec.runtime_class_name:
        yield f'runtimeClassName: RuntimeClass "{spec.runtime_class_name}" is not known here'
    if spec.os is not None and spec.os.name not in ("", "linux"):
        yield f"os: this node runs linux, not {spec.os.name}"
    if of_pod.supplemental_groups_policy not in (None, "", "Merge"):
        yield f"supplementalGroupsPolicy: only Merge is served here, not {of_pod.supplemental_groups_policy}"
    if isinstance(container, EphemeralContainer) and container.target_container_name:
        yield f"targetContainerName: this node cannot share the processes of {container.target_container_name}"
    own = container.security_context or SecurityContext()
    if own.proc_mount not in (None, "", "Default"):
        yield f"procMount: only Default is served here, not {own.proc_mount}"
    for context in (of_pod, own):
        if context.windows_options is not None and context.windows_options.host_process:
            yield "windowsOptions: this node runs linux"
