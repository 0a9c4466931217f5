"""Pod security admission: pods get only the powers that the labels of their namespace allow.

A rule of the writer refuses pods that violate the enforced level, whoever creates them. Violations of the `warn` level
become a Warning header, those of the `audit` level an annotation of the audit event. Namespaces without labels have the
levels of MANCIPLE_POD_SECURITY; those in MANCIPLE_POD_SECURITY_EXEMPT_NAMESPACES are not checked. Everybody who may
write a namespace may label it.

Another rule refuses invalid labels. A write that raises the level of a namespace gets a warning about its pods that
violate the new level: up to `PODS` of them are checked before the transaction, for up to `SECONDS`.
Source: k8s.io/pod-security-admission/admission of Kubernetes 1.36.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from claims.kinds.pod_security import (
    PREFIX,
    LevelVersion,
    PodSecurityPolicy,
    describe,
    is_significant_update,
    parse_policy,
    policy_of,
    reasons,
    violations,
)
from claims.kinds.pods import Pod
from manciple.api import first_stage
from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.store.records import Stored
from manciple.wire import codec
from manciple.wire.errors import Forbidden, Invalid
from manciple.wire.registry import registry

NAMESPACES, PODS_RESOURCE = "namespaces", "pods"
#: Subresources that do not change a pod's security.
IGNORED = frozenset({"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"})
#: The maximum of pods, and of seconds, that are checked when the level of their namespace is raised.
PODS, SECONDS = 3000, 1.0


@dataclass(frozen=True, slots=True)
class PodSecurity:
    """The settings. exempt: namespaces whose pods are not checked."""

    default: PodSecurityPolicy
    exempt: frozenset[str]

    @classmethod
    def current(cls) -> PodSecurity:
        """Raises: ImproperlyConfigured."""
        return _configured(settings.POD_SECURITY, tuple(settings.POD_SECURITY_EXEMPT_NAMESPACES))


@lru_cache(maxsize=8)
def _configured(default: str, exempt: tuple[str, ...]) -> PodSecurity:
    try:
        return PodSecurity(parse_policy(default), frozenset(exempt))
    except ValueError as error:
        raise ImproperlyConfigured(f"MANCIPLE_POD_SECURITY: {error}") from error


def register() -> None:
    """Raises: ImproperlyConfigured."""
    PodSecurity.current()
    hooks.register_rule(check_pod, operations={"CREATE", "UPDATE"}, resources={PODS_RESOURCE})
    hooks.register_rule(check_labels, operations={"CREATE", "UPDATE"}, resources={NAMESPACES})
    first_stage.register_check(warn_of_pods)


# Pods -----------------------------------------------------------------------------------------------------------------


def check_pod(writer: Writer, write: Write) -> None:
    """Raises: Forbidden for a pod that violates the enforced level of its namespace."""
    pod: Pod = write.new
    if write.subresource in IGNORED:
        return
    if write.old is not None and not is_significant_update(pod.spec, write.old.spec):
        return
    security = PodSecurity.current()
    if pod.metadata.namespace in security.exempt:
        hooks.annotate(f"{PREFIX}exempt", "namespace")
        return
    namespace = writer.get(registry.by_resource(NAMESPACES), "", pod.metadata.namespace)
    policy, wrong = policy_of(namespace.metadata.labels if namespace is not None else {}, security.default)
    if wrong:
        hooks.annotate(f"{PREFIX}error", f"Failed to parse policy: {'; '.join(map(str, wrong))}")
    hooks.annotate(f"{PREFIX}enforce-policy", str(policy.enforce))
    _judge(pod, policy)


def _judge(pod: Pod, policy: PodSecurityPolicy) -> None:
    """Raises: Forbidden."""
    found = violations(policy.enforce, pod)
    audited = found if policy.audit == policy.enforce else violations(policy.audit, pod)
    if audited:
        hooks.annotate(f"{PREFIX}audit-violations", f'would violate PodSecurity "{policy.audit}": {describe(audited)}')
    if found:
        raise _forbidden(pod, f'violates PodSecurity "{policy.enforce}": {describe(found)}')
    if warned := violations(policy.warn, pod):
        hooks.warn(f'would violate PodSecurity "{policy.warn}": {describe(warned)}')


def _forbidden(pod: Pod, why: str) -> Forbidden:
    name = pod.metadata.name
    return Forbidden(f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": PODS_RESOURCE})


# Namespaces -----------------------------------------------------------------------------------------------------------


def check_labels(_writer: Writer, write: Write) -> None:
    """Raises: Invalid for invalid labels, unless the namespace had the same errors before."""
    if write.subresource:
        return
    default = PodSecurity.current().default
    wrong = policy_of(write.new.metadata.labels, default)[1]
    if wrong and (write.old is None or wrong != policy_of(write.old.metadata.labels, default)[1]):
        raise Invalid.of(kind="Namespace", group="", name=write.new.metadata.name, errors=wrong)


def warn_of_pods(write: Write) -> None:
    """Warn about labels without effect, or about existing pods that violate a stricter level."""
    if write.kind.resource != NAMESPACES or write.operation == "DELETE" or write.subresource:
        return
    security, name, labels = PodSecurity.current(), write.new.metadata.name, write.new.metadata.labels
    policy, wrong = policy_of(labels, security.default)
    if wrong:
        return
    old = None if write.old is None else policy_of(write.old.metadata.labels, security.default)[0]
    if old is not None and not _is_raised(policy.enforce, old.enforce):
        return
    if name in security.exempt:
        _warn_of_exemption(name, labels, policy, security.default)
    elif old is not None:
        for text in _evaluated(name, policy.enforce):
            hooks.warn(text)


def _is_raised(new: LevelVersion, old: LevelVersion) -> bool:
    """Whether pods that the old level allowed may violate the new one."""
    if new == old or new.level == "privileged":
        return False
    return new.minor != old.minor or new.strictness > old.strictness


def _warn_of_exemption(
    name: str, labels: Mapping[str, str], policy: PodSecurityPolicy, default: PodSecurityPolicy
) -> None:
    if policy.allows_everything or policy == default:
        return
    said = [
        f"{mode}={asked}"
        for mode, asked in policy._asdict().items()
        if asked.level != "privileged" and {f"{PREFIX}{mode}", f"{PREFIX}{mode}-version"} & labels.keys()
    ]
    hooks.warn(f'namespace "{name}" is exempt from Pod Security, and the policy ({", ".join(said)}) will be ignored')


@dataclass(slots=True)
class _Violators:
    """Pods that violate a level for the same reasons. name: the first of them."""

    name: str
    count: int = 0

    def __str__(self) -> str:
        if self.count == 1:
            return self.name
        return f"{self.name} (and {self.count - 1} other pod{'s' if self.count > 2 else ''})"  # noqa: PLR2004


def _evaluated(namespace: str, enforce: LevelVersion) -> Iterator[str]:
    """The warnings: a line for each set of reasons, with the number of pods."""
    deadline = time.monotonic() + SECONDS
    page = objects.list(registry.by_resource(PODS_RESOURCE), namespace=namespace, limit=PODS)
    checked, by_reason = 0, dict[str, _Violators]()
    for pod in _one_of_each_owner_first(page.items):
        checked += 1
        if found := violations(enforce, pod):
            violators = by_reason.setdefault(reasons(found), _Violators(pod.metadata.name))
            violators.name = min(violators.name, pod.metadata.name)
            violators.count += 1
        if time.monotonic() > deadline:
            break
    total = len(page.items) + (page.remaining or 0)
    if checked < total:
        yield f"new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
    if by_reason:
        yield f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{enforce}"'
    yield from sorted(f"{violators}: {reason}" for reason, violators in by_reason.items())


def _one_of_each_owner_first(items: Sequence[Stored]) -> Iterator[Pod]:
    """Pods of the same owner usually have the same violations."""
    owners: set[str] = set()
    later: list[Pod] = []
    for item in items:
        pod = codec.decode_text(Pod, item.text)
        owner = next((one.uid for one in pod.metadata.owner_references if one.controller), "")
        if owner in owners:
            later.append(pod)
            continue
        if owner:
            owners.add(owner)
        yield pod
    yield from later
