"""Secrets and ConfigMaps that a test gives, in the place of what an agent reads."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from manciple.access.kinds.secrets import ConfigMap, Secret
from nodeagent.runtimes.protocol import MissingSource

Texts = dict[str, str]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass
class GivenSources:
    """A `PodSource`; both by name, whatever the namespace. unreadable: names that nobody can tell anything of."""

    secrets: dict[str, Texts] = field(default_factory=dict)
    config_maps: dict[str, Texts] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)

    def secret(self, namespace: str, name: str) -> Secret:
        data = self._found("secret", name, self.secrets)
        return Secret(data={key: encoded(text) for key, text in data.items()})

    def config_map(self, namespace: str, name: str) -> ConfigMap:
        return ConfigMap(data=self._found("configmap", name, self.config_maps))

    def _found(self, kind: str, name: str, known: dict[str, Texts]) -> Texts:
        if name in self.unreadable:
            raise MissingSource("no answer from the API server", absent=False)
        if name not in known:
            raise MissingSource(f'{kind} "{name}" not found')
        return known[name]
