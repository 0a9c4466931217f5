"""`manciple-agent join URL --token TOKEN`: makes this machine a node, as `kubeadm join` does.

 1. find the CA of the API server: a file, the system's, or the one that the server names, verified by the hash that
    `manage.py node_token` printed. Until then only public data is sent.
 2. request the node's certificate, with the token; wait until it is approved and signed
 3. write a kubeconfig that names the authority and the certificate

All files are in the node's state directory. After an interruption at any step the same command continues from there.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from manciple import layout
from nodeagent.api.client import CONNECT_TIMEOUT, READ_TIMEOUT, Client
from nodeagent.config import node_name
from nodeagent.failures import AgentError, CredentialRefused
from nodeagent.node.credentials import CREDENTIAL, LOOK_AGAIN, Acquisition, read_certificate
from nodeagent.storage import Disk

#: Where a cluster tells everybody how its API server is known (upstream: bootstrapapi.ConfigMapClusterInfo).
CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
KUBECONFIG, AUTHORITY = "kubeconfig", "ca.crt"
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
#: Bytes of that document, at most.
LARGEST = 1 << 20
#: A credential with less than this left (seconds) is asked for anew.
NEARLY_OVER = 3600.0


class NotJoined(Exception):
    """The machine is no node yet. Its text says why, and what to do."""


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        prog=f"{layout.NODE_COMMAND} join", description="Makes this machine a node of a cluster."
    )
    add = command.add_argument
    add("server", metavar="URL", help="the API server's, https://host:port")
    token = command.add_mutually_exclusive_group(required=True)
    token.add_argument("--token", help="the bootstrap token, from `manage.py node_token`")
    token.add_argument("--token-file", type=Path, metavar="FILE", help="a file with it: no other user sees it in ps")
    trust = command.add_mutually_exclusive_group()
    trust.add_argument("--ca-hash", metavar="sha256:…", help="of the authority's key, as printed with the token")
    trust.add_argument("--ca-file", type=Path, metavar="FILE", help="its certificate (default: those of the system)")
    add(
        "--node-name",
        type=node_name,
        default=socket.gethostname().lower(),
        metavar="NAME",
        help="(default: this machine's name)",
    )
    add("--state-dir", type=Path, metavar="DIR", help="where the node keeps things (default: var/nodes/NAME)")
    add("--wait", type=float, default=300.0, metavar="S", help="how long for the certificate (default: %(default)g)")
    return command


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    folder = (options.state_dir or Path("var/nodes") / options.node_name).resolve()
    try:
        token = options.token or options.token_file.read_text().strip()
        authority = find_authority(options.server, folder, ca_hash=options.ca_hash, ca_file=options.ca_file)
        join(options.server, token, authority, node=options.node_name, folder=folder, wait=options.wait)
    except (NotJoined, AgentError, OSError) as error:
        print(f"nodeagent join: {error}", file=sys.stderr)
        return 1
    print(f"This machine is node {options.node_name}. Start its agent:\n")
    print(f"  {layout.NODE_COMMAND} run --node-name {options.node_name} --kubeconfig {folder / KUBECONFIG}")
    return 0


def join(
    server: str,
    token: str,
    authority: Path | None,
    *,
    node: str,
    folder: Path,
    wait: float,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Get the node's credential, and write the kubeconfig. Raises: NotJoined, AgentError, OSError."""
    acquisition = Acquisition(folder, node=node)
    acquisition.settle()
    if not _holds(acquisition.credential, node):
        client = Client(server, token=token, ca_file=authority, user_agent="manciple-nodeagent-join")
        try:
            _acquire(acquisition, client, wait=wait, pause=pause)
        finally:
            client.close()
    content = yaml.safe_dump(_kubeconfig(server, authority, node), sort_keys=False)
    Disk().write(folder / KUBECONFIG, content.encode(), mode=0o600)


def _holds(credential: Path, node: str) -> bool:
    """Whether the machine is this node already. Raises: NotJoined where it is another one; StorageFailed."""
    if not credential.exists():
        return False
    held = read_certificate(credential)
    if held.name != f"system:node:{node}":
        raise NotJoined(f"{credential} is that of {held.name}; choose another --state-dir, or remove it")
    return held.ends - time.time() > NEARLY_OVER


def _acquire(acquisition: Acquisition, client: Client, *, wait: float, pause: Callable[[float], None]) -> None:
    """Raises: NotJoined, AgentError."""
    deadline = time.monotonic() + wait
    while True:
        try:
            if acquisition.advance(client):
                return
        except CredentialRefused as refusal:
            raise NotJoined(str(refusal)) from refusal
        if time.monotonic() > deadline:
            raise NotJoined(
                "the request has not been approved and signed yet; see `kubectl get csr`, approve it there "
                "(`kubectl certificate approve NAME`), and run this again: it continues from here"
            )
        pause(LOOK_AGAIN)


def _kubeconfig(server: str, authority: Path | None, node: str) -> dict[str, Any]:
    """Its files stand beside it."""
    cluster = {"server": server, **({"certificate-authority": str(authority)} if authority else {})}
    user = f"system:node:{node}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": user, "user": {"client-certificate": CREDENTIAL, "client-key": CREDENTIAL}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": user}}],
        "current-context": "default",
    }


# The authority --------------------------------------------------------------------------------------------------------


def find_authority(server: str, folder: Path, *, ca_hash: str | None, ca_file: Path | None) -> Path | None:
    """The file of the authority to trust; None for the system's. Raises: NotJoined, OSError, StorageFailed."""
    if not server.startswith("https://"):
        raise NotJoined(f"{server} is not an https:// address: credentials are sent over TLS only")
    if ca_file is not None:
        return ca_file.resolve()
    if ca_hash is None:
        return None
    if not _HASH.fullmatch(ca_hash):
        raise NotJoined(f"{ca_hash!r} is no hash: it begins with sha256: and has 64 hexadecimal digits")
    target = folder / AUTHORITY
    unproven = target.with_name(f"{AUTHORITY}.unproven")
    Disk().write(unproven, _cluster_info(server))
    try:
        fingerprint = f"sha256:{read_certificate(unproven).key}"
        if fingerprint != ca_hash:
            raise NotJoined(
                f"{server} names another authority ({fingerprint}) than --ca-hash; do not join it before "
                f"you know why: see the hash with `manage.py node_token`, and that nobody stands in between"
            )
        unproven.replace(target)
    finally:
        unproven.unlink(missing_ok=True)
    return target


def _cluster_info(server: str) -> bytes:
    """The authority's certificate (PEM) as whoever answers at `server` says it is. Raises: NotJoined.

    One certificate alone: a hash vouches for no second one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    timeout = httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
    try:
        with httpx.stream("GET", f"{server}{CLUSTER_INFO}", verify=context, timeout=timeout, trust_env=False) as answer:
            answer.raise_for_status()
            document = json.loads(_read(answer))
        clusters = yaml.safe_load(document["data"]["kubeconfig"])["clusters"]
        certificate = base64.b64decode(clusters[0]["cluster"]["certificate-authority-data"], validate=True)
    except httpx.HTTPError as error:
        raise NotJoined(f"{server}{CLUSTER_INFO}: {error}; give the authority's certificate with --ca-file") from error
    except (KeyError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
        raise NotJoined(f"{server}{CLUSTER_INFO} does not name an authority; give it with --ca-file") from error
    if certificate.count(b"-----BEGIN ") != 1:
        raise NotJoined(f"{server}{CLUSTER_INFO} does not name one authority; give its certificate with --ca-file")
    return certificate


def _read(answer: httpx.Response) -> bytes:
    """Raises: ValueError for more than such a document can be."""
    content = b""
    for piece in answer.iter_bytes():
        content += piece
        if len(content) > LARGEST:
            raise ValueError("the document is too large")
    return content
