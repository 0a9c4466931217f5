"""The agent's server from its configuration: certificate, port, and what a Node says of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodeagent.config import ListenAddress
from nodeagent.failures import ListenFailed
from nodeagent.server import certificates
from nodeagent.server.endpoint import Endpoint, Respond


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where the agent is reached: its port, and the SHA-256 of its certificate in hexadecimal."""

    port: int
    fingerprint: str


class AgentServer:
    """Serves from `start` to `stop`. folder: keeps the certificate, which names `hosts`."""

    def __init__(self, address: ListenAddress, respond: Respond, *, folder: Path, hosts: tuple[str, ...]) -> None:
        self._address = address
        self._respond = respond
        self._folder = folder
        self._hosts = hosts
        self._endpoint: Endpoint | None = None

    def start(self) -> Serving:
        """Raises: ListenFailed saying what to do."""
        address = self._address
        try:
            certificate = certificates.ensure(self._folder, self._hosts)
            self._endpoint = Endpoint(address.host, address.port, certificate.context(), self._respond)
        except OSError as error:
            raise ListenFailed(
                f"cannot serve health, metrics and logs on {address}: {error}; "
                f"choose an address of this machine with --listen ADDRESS:PORT, or none with --listen ''"
            ) from error
        self._endpoint.start()
        return Serving(port=self._endpoint.port, fingerprint=certificate.fingerprint)

    def stop(self) -> None:
        if self._endpoint is not None:
            self._endpoint.stop()
            self._endpoint = None
