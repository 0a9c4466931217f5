"""Which of the server's own API versions are served, with the meaning of kube-apiserver's `--runtime-config`.

    api/all=false,api/ga=true,resource.k8s.io/v1beta1=true

`api/all`, `api/ga`, `api/beta` and `api/alpha` stand for all versions of a stage and apply in that order, whatever the
order in which they are given; then versions (`GROUP/VERSION`, or `v1` for the core group), then single resources of a
version (`GROUP/VERSION/RESOURCE`). Kinds of CustomResourceDefinitions are not concerned. What is not served is in no
discovery document and no schema, and its path is not found; the store keeps its objects, and the system itself goes on
using them. Source: apiserver/pkg/server/resourceconfig/helpers.go, apiserver/pkg/server/options/api_enablement.go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from manciple.wire.registry import registry

ALL = "api/all"
#: In the order in which they apply.
_STAGES: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        ALL: re.compile(".*"),
        "api/ga": re.compile("v[0-9]+"),
        "api/beta": re.compile("v[0-9]+beta[0-9]+"),
        "api/alpha": re.compile("v[0-9]+alpha[0-9]+"),
    }
)
#: strconv.ParseBool; without a value a version is enabled.
_TRUTH = {
    **dict.fromkeys(("", "1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """versions: (group, version). resources: (group, version, plural)."""

    stages: Mapping[str, bool] = field(default_factory=dict)
    versions: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    resources: Mapping[tuple[str, str, str], bool] = field(default_factory=dict)

    def serves(self, group: str, version: str, plural: str) -> bool:
        if (enabled := self.resources.get((group, version, plural))) is not None:
            return enabled
        if (enabled := self.versions.get((group, version))) is not None:
            return enabled
        served = True
        for stage, matches in _STAGES.items():
            if stage in self.stages and matches.fullmatch(version):
                served = self.stages[stage]
        return served

    def check(self, known: Collection[tuple[str, str, str]]) -> None:
        """known: (group, version, plural) of all that can be served. Raises: ValueError for what cannot."""
        groups, versions = {one[0] for one in known}, {one[:2] for one in known}
        named = {*self.versions, *(one[:2] for one in self.resources)}
        if unknown := sorted({group for group, _ in named} - groups):
            raise ValueError(f"unknown api groups {','.join(unknown)}")
        for group, version in sorted(named - versions):
            raise ValueError(f"group version {f'{group}/{version}'.removeprefix('/')} has not been registered")
        for group, version, plural in sorted(self.resources.keys() - set(known)):
            raise ValueError(f"there is no resource {plural} in {group}/{version}")


def parse(text: str) -> RuntimeConfig:
    """Raises: ValueError for what kube-apiserver refuses at its start."""
    stages: dict[str, bool] = {}
    versions: dict[tuple[str, str], bool] = {}
    resources: dict[tuple[str, str, str], bool] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        key, _, value = part.partition("=")
        if key in _STAGES:
            if value not in ("true", "false"):
                raise ValueError(f"invalid value {key}={value}, must be true or false")
            stages[key] = value == "true"
            continue
        if value not in _TRUTH:
            raise ValueError(f"invalid value of {key}: {value!r}, must be true or false")
        match ("/" + key if "/" not in key else key).split("/"):
            case [group, version] if version:
                versions[group, version] = _TRUTH[value]
            case [group, version, plural] if version and plural and plural == plural.lower():
                resources[group, version, plural] = _TRUTH[value]
            case _:
                raise ValueError(f"runtime-config invalid key {key}")
    if stages == {ALL: False} and not versions and not resources:
        raise ValueError(f"invalid key with only {ALL}=false")
    return RuntimeConfig(stages, versions, resources)


_now = RuntimeConfig()


def use(config: RuntimeConfig) -> None:
    """It holds in this process from now on."""
    global _now  # noqa: PLW0603 - one configuration of the process
    _now = config
    registry.ask_restrictions_again()


@contextmanager
def using(config: RuntimeConfig) -> Iterator[None]:
    before = _now
    use(config)
    try:
        yield
    finally:
        use(before)


def serves(group: str, version: str, plural: str) -> bool:
    """Of what is registered."""
    return _now.serves(group, version, plural)
