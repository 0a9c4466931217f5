"""The certificate by which a node comes to the API server: how it gets one, and how it renews it.

    credential.pem           the key in use with its certificate, replaced in one step
    credential.next.key      the key of the certificate that is asked for

A node asks by a CertificateSigningRequest, named after the key, and takes the certificate out of it once it is there.
Every step can be cut off and taken again: the key is on the disk before anybody hears of it, a request that exists
already is the one that was made, and the key is removed only when the credential stands. The private key never leaves
the node.

Renewal begins when between 70 and 90 percent of a certificate's time are over, spread over the nodes of a cluster, and
with a new key. Source: client-go util/certificate/certificate_manager.go.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manciple import layout
from manciple.access.kinds.certificate_requests import (
    DENIED,
    FAILED,
    NODE_SIGNER,
    NODE_USAGES,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from manciple.wire.base import ObjectMeta
from nodeagent.api.client import ApiResource, Client
from nodeagent.failures import ApiFailure, CredentialRefused, StorageFailed
from nodeagent.storage import Disk

log = logging.getLogger(__name__)

CREDENTIAL, NEXT_KEY = "credential.pem", "credential.next.key"
REQUESTS = ApiResource(
    CertificateSigningRequest, "certificates.k8s.io/v1", "certificatesigningrequests", namespaced=False
)

#: Seconds between looks at a request that is not answered; it may have to wait for a person.
LOOK_AGAIN = 2.0
#: Seconds after which a renewal that was refused is tried again, with another key.
AFTER_REFUSAL = 3600.0
#: Seconds that a key and a request may take to be made, on a busy machine.
MAKING_TIMEOUT = 120
_MAKER = Path(__file__).with_name("certificate_maker.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCertificate:
    """What a certificate says. begins, ends: seconds since 1970. key: SHA-256 of its public key."""

    name: str
    begins: float
    ends: float
    key: str

    @property
    def renewal(self) -> float:
        """When to renew it: the same for one certificate, and another for the next node's."""
        spread = int.from_bytes(hashlib.sha256(f"{self.name} {self.begins}".encode()).digest()[:4]) / 2**32
        return self.begins + (self.ends - self.begins) * (0.7 + 0.2 * spread)


def read_certificate(file: Path) -> KnownCertificate:
    """The first certificate in a PEM file. Raises: StorageFailed."""
    return KnownCertificate(**_made("read", str(file)))


def _made(*arguments: str) -> dict[str, Any]:
    """What the maker says. Raises: StorageFailed."""
    command = [sys.executable, "-P", str(_MAKER), *arguments]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=MAKING_TIMEOUT)
        result: dict[str, Any] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().rpartition("\n")[2]
        raise StorageFailed(f"{arguments[1]}: {reason}") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise StorageFailed(f"{arguments[1]}: {error}") from error
    return result


class Acquisition:
    """One certificate, from its key to the credential in `folder`; `advance` until it stands."""

    def __init__(self, folder: Path, *, node: str, disk: Disk | None = None) -> None:
        self._node = node
        self._disk = disk or Disk()
        self.credential, self._key = folder / CREDENTIAL, folder / NEXT_KEY

    def advance(self, client: Client) -> bool:
        """Whether the credential stands; otherwise ask again later.

        Raises: CredentialRefused, ApiFailure, StorageFailed.
        """
        asked = _made("request", str(self._key), self._node)
        name = f"node-csr-{asked['key'][:43]}"
        request = self._found(client, name) or self._create(client, name, asked["request"])
        for type_ in (DENIED, FAILED):
            if (condition := request.condition(type_)) is not None:
                self.forget()
                raise CredentialRefused(f"request {name} was {type_.lower()}: {condition.message or condition.reason}")
        if not request.status.certificate:
            return False
        self._keep(base64.b64decode(request.status.certificate))
        return True

    def _found(self, client: Client, name: str) -> CertificateSigningRequest | None:
        try:
            return client.get(REQUESTS, name)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
            return None

    def _create(self, client: Client, name: str, encoded: str) -> CertificateSigningRequest:
        spec = CertificateSigningRequestSpec(request=encoded, signer_name=NODE_SIGNER, usages=NODE_USAGES)
        return client.create(REQUESTS, CertificateSigningRequest(metadata=ObjectMeta(name=name), spec=spec))

    def _keep(self, certificate: bytes) -> None:
        """Raises: StorageFailed; what was kept before is then as it was."""
        try:
            self._disk.write(self.credential, self._key.read_bytes() + certificate, mode=0o600)
            self._disk.remove(self._key)
        except OSError as error:
            raise StorageFailed(f"{self.credential}: {error}") from error

    def settle(self) -> None:
        """After a kill between the credential and the removal of its key. Raises: StorageFailed."""
        try:
            if self._key.exists() and self.credential.exists():
                kept, asked = self._disk.read(self.credential), self._disk.read(self._key)
                if kept.startswith(asked):
                    self.forget()
        except OSError as error:
            raise StorageFailed(f"{self.credential}: {error}") from error

    def forget(self) -> None:
        """The next request is for another key."""
        try:
            self._disk.remove(self._key)
        except OSError as error:
            raise StorageFailed(f"{self._key}: {error}") from error


class Renewal:
    """Renews the credential in `folder`, one step at a time.

    renewed: called when another certificate is in use, so that connections are opened with it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        node: str,
        renewed: Callable[[], None],
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._acquisition = Acquisition(folder, node=node, disk=disk)
        self._node, self._renewed, self._clock = node, renewed, clock
        self._known: KnownCertificate | None = None

    def step(self, client: Client) -> float:
        """Seconds after which to come again. Raises: ApiFailure, StorageFailed."""
        certificate = self._known = self._known or self._read()
        now = self._clock()
        if now < certificate.renewal:
            return certificate.renewal - now
        if now >= certificate.ends:
            log.error(
                "node %s: its certificate has expired and the API server refuses it; join again: "
                "%s join URL --token TOKEN --node-name %s",
                self._node,
                layout.NODE_COMMAND,
                self._node,
            )
        try:
            if not self._acquisition.advance(client):
                return LOOK_AGAIN
        except CredentialRefused as refusal:
            log.warning("node %s: its certificate is not renewed: %s", self._node, refusal)
            return AFTER_REFUSAL
        self._known = self._read()
        self._renewed()
        log.info("node %s: its certificate was renewed, until %s", self._node, time.ctime(self._known.ends))
        return self._known.renewal - now

    def _read(self) -> KnownCertificate:
        self._acquisition.settle()
        return read_certificate(self._acquisition.credential)
