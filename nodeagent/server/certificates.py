"""The agent's own certificate: made at the first start, kept in its state directory, known by its SHA-256."""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Seconds that making one may take, on a busy machine.
MAKING_TIMEOUT = 120
#: A certificate with less than this left (seconds) is made anew at the next start.
RENEW_BEFORE = 365 * 86400
_MAKER = Path(__file__).with_name("certificate_maker.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The files, PEM. `fingerprint`: the SHA-256 of the certificate (DER), in hexadecimal."""

    certificate: Path
    key: Path
    fingerprint: str

    def context(self) -> ssl.SSLContext:
        """What a server presents it with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def ensure(folder: Path, hosts: Sequence[str]) -> Certificate:
    """The certificate in `folder`, made where there is none that names `hosts` and has a year left.

    Raises: OSError saying what went wrong.
    """
    kept = _load(folder)
    if kept is not None and _will_do(kept.certificate, hosts):
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    _make(folder, hosts)
    made = _load(folder)
    if made is None:
        raise OSError(f"the certificate just made in {folder} cannot be read")
    return made


def _make(folder: Path, hosts: Sequence[str]) -> None:
    command = [sys.executable, "-P", str(_MAKER), str(folder), *hosts]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=MAKING_TIMEOUT)
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().rpartition("\n")[2]
        raise OSError(f"no certificate could be made in {folder}: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no certificate could be made in {folder} within {MAKING_TIMEOUT} s") from error


def _load(folder: Path) -> Certificate | None:
    """What lies in `folder`, if a server could present it."""
    certificate, key = folder / "agent.crt", folder / "agent.key"
    try:
        der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
        found = Certificate(certificate=certificate, key=key, fingerprint=hashlib.sha256(der).hexdigest())
        found.context()
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return None
    return found


def _will_do(certificate: Path, hosts: Sequence[str]) -> bool:
    reader = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    reader.load_verify_locations(certificate)
    for described in reader.get_ca_certs():
        named = {_normal(str(entry[1])) for entry in described.get("subjectAltName", ())}
        ends = ssl.cert_time_to_seconds(str(described["notAfter"]))
        return {_normal(host) for host in hosts} <= named and ends - time.time() > RENEW_BEFORE
    return False


def _normal(host: str) -> str:
    """An IPv6 address may be written in several ways."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host
