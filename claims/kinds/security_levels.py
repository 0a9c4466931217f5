"""Pod security: which powers over its node a pod may ask for, by the level that its namespace has. PURE.

Three levels: `privileged` allows everything, `baseline` forbids what leads out of a container, `restricted` demands
that a pod gives up what it does not need. A namespace's labels name the level for each of three modes (enforce, audit,
warn), and the version of the rules: `latest`, or `v1.N` for the rules as Kubernetes 1.N had them.

What each level forbids stands in `claims.kinds.security_checks`.
Source: k8s.io/pod-security-admission of Kubernetes 1.36, api/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from manciple.wire.errors import FieldError, invalid

Level = Literal["privileged", "baseline", "restricted"]
Mode = Literal["enforce", "audit", "warn"]

#: By how much they demand.
LEVELS: tuple[Level, ...] = ("privileged", "baseline", "restricted")
MODES: tuple[Mode, ...] = ("enforce", "audit", "warn")
PREFIX = "pod-security.kubernetes.io/"
#: The newest rules there are: N of v1.N. Later versions mean these.
NEWEST = 36
#: The latest ones, whatever they are.
LATEST = -1

_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,8})")


class LevelVersion(NamedTuple):
    """minor: N of v1.N, or LATEST."""

    level: Level = "privileged"
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    @property
    def strictness(self) -> int:
        return LEVELS.index(self.level)


class PodSecurityPolicy(NamedTuple):
    """What is refused, what is noted in the audit trail, what the client is warned of."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    @property
    def allows_everything(self) -> bool:
        return all(one.level == "privileged" for one in self)


def parse_policy(text: str) -> PodSecurityPolicy:
    """`enforce=baseline,warn=restricted:v1.30` -> a policy. Raises: ValueError."""
    policy = PodSecurityPolicy()
    for part in filter(None, (one.strip() for one in text.split(","))):
        mode, _, value = part.partition("=")
        level, _, version = value.partition(":")
        parsed = _level(level), _minor(version or "latest")
        if mode not in MODES or parsed[0] is None or parsed[1] is None:
            raise ValueError(f"{part!r} is not MODE=LEVEL or MODE=LEVEL:VERSION, such as enforce=baseline:v1.36")
        policy = policy._replace(**{mode: LevelVersion(parsed[0], parsed[1])})
    return policy


def policy_of(labels: Mapping[str, str], default: PodSecurityPolicy) -> tuple[PodSecurityPolicy, list[FieldError]]:
    """The policy of a namespace with `labels`, and what is wrong with these.

    A level that cannot be read is `restricted` to enforce, and none to audit or warn; a version is the latest.
    """
    given = tuple((name, labels[PREFIX + name]) for name in _LABELS if PREFIX + name in labels)
    policy, wrong = _policy(given, default) if given else (default, ())
    return policy, [invalid(f"metadata.labels[{PREFIX}{name}]", value, detail) for name, value, detail in wrong]


_LABELS = tuple(name for mode in MODES for name in (mode, f"{mode}-version"))


@lru_cache(maxsize=1024)
def _policy(
    given: tuple[tuple[str, str], ...], default: PodSecurityPolicy
) -> tuple[PodSecurityPolicy, tuple[tuple[str, str, str], ...]]:
    """(the policy, (label without prefix, value, what is wrong with it) of each that cannot be read)"""
    labels, policy = dict(given), default
    wrong: list[tuple[str, str, str]] = []
    for mode in MODES:
        level, minor = getattr(policy, mode)
        if mode in labels:
            read_level = _level(labels[mode])
            level = read_level or ("restricted" if mode == "enforce" else "privileged")
            if read_level is None:
                wrong.append((mode, labels[mode], f"must be one of {', '.join(LEVELS)}"))
        if (name := f"{mode}-version") in labels:
            read_minor = _minor(labels[name])
            minor = LATEST if read_minor is None else read_minor
            if read_minor is None:
                wrong.append((name, labels[name], 'must be "latest" or "v1.x"'))
        policy = policy._replace(**{mode: LevelVersion(level, minor)})
    return _warning_of_enforced(policy, labels), tuple(wrong)


def _warning_of_enforced(policy: PodSecurityPolicy, labels: Mapping[str, str]) -> PodSecurityPolicy:
    """Where a stricter level is enforced than is warned of, and nobody said otherwise, that one is warned of too."""
    enforce, warn = policy.enforce, policy.warn
    if "warn" in labels or _level(labels.get("enforce", "")) is None or enforce.strictness <= warn.strictness:
        return policy
    minor = warn.minor if "warn-version" in labels else enforce.minor
    return policy._replace(warn=LevelVersion(enforce.level, minor))


def _level(text: str) -> Level | None:
    return text if text in LEVELS else None


def _minor(text: str) -> int | None:
    if text == "latest":
        return LATEST
    match = _VERSION.fullmatch(text)
    return int(match[1]) if match else None
