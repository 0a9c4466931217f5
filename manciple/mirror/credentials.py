"""Credentials from an exec plugin: the program that a kubeconfig names prints a token, or a certificate and its key.

Source: client-go plugin/pkg/client/auth/exec/exec.go and pkg/apis/clientauthentication/v1/types.go (Kubernetes 1.36).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any, Final

from manciple.mirror.failures import RemoteFailure
from manciple.mirror.kubeconfig import Access, ExecPlugin, User

#: Seconds that a plugin may take which asks nobody anything; one that opens a browser waits for a person.
PATIENCE: Final = 120


def complete(access: Access) -> Access:
    """With what the user's plugin prints, where there is one. Raises: RemoteFailure."""
    plugin = access.user.plugin
    if plugin is None or access.user.token or access.user.certificate:
        return access
    status = _printed(plugin, access)
    token, certificate, key = (
        str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if not token and not (certificate and key):
        raise RemoteFailure(f"{_called(plugin)} printed neither a token nor a certificate with its key")
    user: User = replace(access.user, token=token, certificate=certificate, key=key)
    return replace(access, user=user)


def _called(plugin: ExecPlugin) -> str:
    return f"the credential plugin `{' '.join((plugin.command, *plugin.arguments))}`"


def _printed(plugin: ExecPlugin, access: Access) -> dict[str, Any]:
    """The status of the ExecCredential."""
    interactive = plugin.interactive != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not interactive:
        raise RemoteFailure(f"{_called(plugin)} needs a terminal")
    command = str(plugin.folder / plugin.command) if "/" in plugin.command else plugin.command
    told = {
        "kind": "ExecCredential",
        "apiVersion": plugin.api_version,
        "spec": {"interactive": interactive, **({"cluster": _cluster(access)} if plugin.provides_cluster else {})},
    }
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": json.dumps(told)}
    try:
        ran = subprocess.run(  # what it says on stderr is for the person
            [command, *plugin.arguments],
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=None if interactive else PATIENCE,
            check=False,
        )
    except FileNotFoundError as error:
        hint = f"\n{plugin.install_hint.strip()}" if plugin.install_hint else ""
        raise RemoteFailure(f"{_called(plugin)} is not installed{hint}") from error
    except subprocess.TimeoutExpired as error:
        raise RemoteFailure(f"{_called(plugin)} did not end within {PATIENCE} seconds") from error
    except OSError as error:
        raise RemoteFailure(f"{_called(plugin)} cannot be run: {error.strerror}") from error
    if ran.returncode:
        raise RemoteFailure(f"{_called(plugin)} failed with exit status {ran.returncode}")
    try:
        document = json.loads(ran.stdout)
        kind, version, status = document["kind"], document["apiVersion"], document["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise RemoteFailure(f"{_called(plugin)} printed no ExecCredential with a status") from error
    if (kind, version) != ("ExecCredential", plugin.api_version) or not isinstance(status, dict):
        wanted = f"an ExecCredential of {plugin.api_version}"
        raise RemoteFailure(f"{_called(plugin)} printed a {kind} of {version}; {wanted} was expected")
    return status


def _cluster(access: Access) -> dict[str, Any]:
    one = access.cluster
    told = {
        "server": one.server,
        "tls-server-name": one.tls_name,
        "insecure-skip-tls-verify": one.insecure,
        "certificate-authority-data": base64.b64encode(one.authority.encode()).decode(),
        "proxy-url": one.proxy,
        "config": one.extension,
    }
    return {name: value for name, value in told.items() if value}
