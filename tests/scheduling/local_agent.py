"""The real agent of a node, with the rights of its node, which asks the API within this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from django.test import Client

from manciple.access.authentication import tokens
from nodeagent.agent import Agent
from nodeagent.config import AgentConfig
from nodeagent.drivers.protocol import DeviceHealth, Driver, Pool
from nodeagent.failures import AgentError
from tests.manciple.api.requests import Api


def token_of(node: str) -> str:
    """Of the node's agent."""
    return tokens.issue(f"system:node:{node}", ["system:nodes"])


def trust_the_api(api: Api) -> None:
    """What every pod finds in the volume of its token."""
    metadata = {"name": "kube-root-ca.crt"}
    trusted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": ""}}
    api.made("/api/v1/namespaces/default/configmaps", trusted)


class PublishesNothing:
    """The part of a driver whose devices are told of in another way."""

    def pools(self) -> Sequence[Pool]:
        return ()

    def subscribe(self, changed: Any) -> None:
        """Nothing ever changes."""

    def health(self) -> Sequence[DeviceHealth]:
        return ()


class LocalAgent:
    """It works when it is told to, and has on its disk what the one before it left there. api: with its rights."""

    def __init__(self, node: str, drivers: Sequence[Driver], folder: Path) -> None:
        token = token_of(node)
        self.api = Api(token)
        self.failures: list[str] = []
        config = AgentConfig(
            server="http://api",
            token=token,
            node_name=node,
            state_dir=folder / "state",
            cdi_dir=folder / "cdi",
            cpu="8",
            memory="16Gi",
            boot="boot-1",
        )
        self._agent = Agent(config, drivers, transport=httpx.MockTransport(_to_api))
        self._agent.recover()
        self.register = self._agent.register

    def look(self) -> None:
        """Do each piece of work once; what fails is tried the next time."""
        self.failures = []
        for one in self._agent.followers:
            one.relist()
        for key in sorted(self._agent.everything()):
            try:
                self._agent.work(key)
            except AgentError as error:
                self.failures.append(str(error))


def _to_api(request: httpx.Request) -> httpx.Response:
    headers = {name: value for name, value in request.headers.items() if name.lower() in ("accept", "authorization")}
    media = request.headers.get("content-type", "application/json")
    path = request.url.raw_path.decode()
    answer: Any = Client().generic(request.method, path, request.content, content_type=media, headers=headers)
    return httpx.Response(answer.status_code, content=answer.content, headers=dict(answer.headers))
