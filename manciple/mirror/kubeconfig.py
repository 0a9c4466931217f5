"""Reads a kubeconfig as kubectl does: which API server to use, and with which credentials.

Files: `--kubeconfig`, else all in KUBECONFIG, else ~/.kube/config, else the service account of the pod. Of several
files the first that names a cluster, a user or a context counts, and the first that has a current context. Relative
paths start at their file.
Source: client-go tools/clientcmd/loader.go, client_config.go and tools/clientcmd/api/v1/types.go (Kubernetes 1.36).
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from manciple.mirror.failures import RemoteFailure

#: What a container has of its pod's service account.
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A program that prints credentials. folder: of the kubeconfig, where a relative command starts."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    api_version: str
    provides_cluster: bool = False
    interactive: str = "IfAvailable"
    install_hint: str = ""
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """server: https://host:port, with a path behind a gateway. authority: the CA's certificates, PEM; "" means those
    of the system. extension: what exec plugins get told besides.
    """

    server: str
    authority: str = ""
    insecure: bool = False
    tls_name: str = ""
    proxy: str = ""
    extension: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """token_file: where the token stands, and is replaced. certificate, key: PEM. headers: of impersonation."""

    name: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    certificate: str = ""
    key: str = field(default="", repr=False)
    password: tuple[str, str] | None = field(default=None, repr=False)
    plugin: ExecPlugin | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """namespace: of the context, where a command names none."""

    cluster: Cluster
    user: User
    namespace: str = "default"
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the command line says, as kubectl's options of the same names."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    acting_as: str = ""
    acting_groups: tuple[str, ...] = ()


def read(choice: Choice, environment: Mapping[str, str] = os.environ, account: Path | None = None) -> Access:
    """Raises: RemoteFailure for a file or an entry that is missing or wrong."""
    merged = _merged(_files(choice, environment))
    wanted = choice.context or merged.current
    if not merged.contexts and not merged.clusters and not choice.kubeconfig:
        return of_pod(choice, environment, account)
    context: Mapping[str, Any] = {}
    if wanted:
        context = merged.entry("contexts", wanted).body
    elif not (choice.cluster and choice.user):
        if not merged.contexts:
            raise RemoteFailure("the kubeconfig has no context: name another file with --kubeconfig, or in KUBECONFIG")
        names = ", ".join(merged.contexts)
        raise RemoteFailure(f"the kubeconfig has no current context; name one with --context ({names})")
    cluster = merged.entry("clusters", choice.cluster or _text(context, "cluster"))
    user_name = choice.user or _text(context, "user")
    user = merged.entry("users", user_name) if user_name else _Entry({}, Path())
    return Access(
        cluster=_cluster(cluster),
        user=_user(user_name, user, choice),
        namespace=_text(context, "namespace") or "default",
        context=wanted,
    )


# The files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """folder: of the file that it stands in."""

    body: Mapping[str, Any]
    folder: Path

    def content(self, name: str) -> str:
        """What stands at `name`-data, or in the file at `name`: PEM. Raises: RemoteFailure."""
        if inline := _text(self.body, f"{name}-data"):
            try:
                return base64.b64decode(inline, validate=False).decode()
            except ValueError as error:  # no base64, or no text
                raise RemoteFailure(f"{name}-data of the kubeconfig cannot be read: {error}") from error
        return _content(self.folder / path) if (path := _text(self.body, name)) else ""


@dataclass(slots=True)
class _Merged:
    current: str = ""
    contexts: dict[str, _Entry] = field(default_factory=dict)
    clusters: dict[str, _Entry] = field(default_factory=dict)
    users: dict[str, _Entry] = field(default_factory=dict)

    def entry(self, section: str, name: str) -> _Entry:
        known: dict[str, _Entry] = getattr(self, section)
        if name not in known:
            names = f"; there are {', '.join(sorted(known))}" if known else ""
            raise RemoteFailure(f'the kubeconfig has no {section.removesuffix("s")} "{name}"{names}')
        return known[name]


def _files(choice: Choice, environment: Mapping[str, str]) -> Iterator[Path]:
    """Those that exist; one that was named by the command line must."""
    if choice.kubeconfig:
        yield Path(choice.kubeconfig).expanduser()
        return
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not named:
        with suppress(RuntimeError):  # nobody has a home in some containers
            named = [Path.home() / ".kube" / "config"]
    yield from (path for path in named if path.exists())


def _merged(files: Iterator[Path]) -> _Merged:
    merged = _Merged()
    for path in files:
        try:
            document = yaml.load(_content(path), Loader=_Loader) or {}  # noqa: S506 - a safe loader, in C where it is
        except yaml.YAMLError as error:
            raise RemoteFailure(f"{path} is no YAML: {error}") from error
        if not isinstance(document, dict):
            raise RemoteFailure(f"{path} is no kubeconfig")
        merged.current = merged.current or _text(document, "current-context")
        folder = path.resolve().parent
        for section, part in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            known: dict[str, _Entry] = getattr(merged, section)
            for one in document.get(section) or ():
                if not isinstance(one, dict) or not isinstance(one.get(part) or {}, dict):
                    raise RemoteFailure(f"{path} has an entry of {section} that is no object")
                known.setdefault(_text(one, "name"), _Entry(one.get(part) or {}, folder))
    return merged


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RemoteFailure(f"{path} cannot be read: {reason}") from error


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    return "" if value is None else str(value)


# Entries --------------------------------------------------------------------------------------------------------------


def _cluster(entry: _Entry) -> Cluster:
    body, server = entry.body, _text(entry.body, "server")
    if not server:
        raise RemoteFailure("the cluster of the kubeconfig has no server")
    extensions = {_text(one, "name"): one.get("extension") for one in body.get("extensions") or ()}
    return Cluster(
        server=(server if "://" in server else f"http://{server}").rstrip("/"),
        authority=entry.content("certificate-authority"),
        insecure=bool(body.get("insecure-skip-tls-verify")),
        tls_name=_text(body, "tls-server-name"),
        proxy=_text(body, "proxy-url"),
        extension=extensions.get("client.authentication.k8s.io/exec"),
    )


def _user(name: str, entry: _Entry, choice: Choice) -> User:
    body = entry.body
    certificate, key = entry.content("client-certificate"), entry.content("client-key")
    if bool(certificate) != bool(key):
        raise RemoteFailure(f'user "{name}": a client certificate and its key belong together')
    if provider := body.get("auth-provider"):
        called = _text(provider, "name") if isinstance(provider, dict) else ""
        raise RemoteFailure(f'user "{name}": the auth provider "{called}" is gone from Kubernetes; use an exec plugin')
    # As client-go has it: the file counts where there are both.
    token_file = entry.folder / path if (path := _text(body, "tokenFile")) else None
    token = _content(token_file).strip() if token_file is not None else _text(body, "token")
    password = (_text(body, "username"), _text(body, "password")) if body.get("username") else None
    plugin = _plugin(name, body["exec"], entry.folder) if isinstance(body.get("exec"), dict) else None
    return User(
        name=name,
        token=token,
        token_file=token_file,
        certificate=certificate,
        key=key,
        password=password,
        plugin=plugin,
        headers=tuple(_impersonation(body, choice)),
    )


def _plugin(name: str, body: Mapping[str, Any], folder: Path) -> ExecPlugin:
    command, version = _text(body, "command"), _text(body, "apiVersion")
    if not command:
        raise RemoteFailure(f'user "{name}": its exec plugin has no command')
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise RemoteFailure(f'user "{name}": its exec plugin has the unknown apiVersion "{version}"')
    return ExecPlugin(
        command=command,
        arguments=tuple(map(str, body.get("args") or ())),
        environment={_text(one, "name"): _text(one, "value") for one in body.get("env") or ()},
        api_version=version,
        provides_cluster=bool(body.get("provideClusterInfo")),
        interactive=_text(body, "interactiveMode") or "IfAvailable",
        install_hint=_text(body, "installHint"),
        folder=folder,
    )


def _impersonation(body: Mapping[str, Any], choice: Choice) -> Iterator[tuple[str, str]]:
    """The headers: what the command line says counts instead of the file."""
    name = choice.acting_as or _text(body, "as")
    groups: Sequence[Any] = choice.acting_groups or (() if choice.acting_as else body.get("as-groups") or ())
    if not name:
        if groups:
            raise RemoteFailure("groups to act as need somebody to act as (--as)")
        return
    yield "Impersonate-User", name
    yield from (("Impersonate-Group", str(group)) for group in groups)
    if not choice.acting_as:
        if uid := _text(body, "as-uid"):
            yield "Impersonate-Uid", uid
        for key, values in (body.get("as-user-extra") or {}).items():
            yield from ((f"Impersonate-Extra-{key}", str(value)) for value in values)


def of_pod(choice: Choice, environment: Mapping[str, str] = os.environ, account: Path | None = None) -> Access:
    """Of the service account, as client-go's rest.InClusterConfig finds it. Raises: RemoteFailure outside of a pod."""
    account = account or ACCOUNT
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (account / "token").exists():
        raise RemoteFailure(
            "there is no kubeconfig, and this is not a pod with a service account: name one with --kubeconfig, or in "
            "KUBECONFIG"
        )
    namespace = account / "namespace"
    return Access(
        cluster=Cluster(
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}", authority=_content(account / "ca.crt")
        ),
        user=User(
            token=_content(account / "token").strip(),
            token_file=account / "token",
            headers=tuple(_impersonation({}, choice)),
        ),
        namespace=_content(namespace).strip() if namespace.exists() else "default",
    )
