"""Kubeconfigs as kubectl reads them: several files, relative paths, inline data, plugins, a pod's own account."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from manciple.mirror import credentials, kubeconfig
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.kubeconfig import Access, Choice
from tests.manciple.mirror.replay import Document
from tests.manciple.mirror.replay import kubeconfig as document_of


def write(path: Path, document: Document) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def read(*files: Path, environment: dict[str, str] | None = None, **choice: Any) -> Access:
    named = os.pathsep.join(map(str, files))
    return kubeconfig.read(Choice(**choice), {"KUBECONFIG": named, **(environment or {})}, Path("/nowhere"))


def named(name: str, server: str, **user: Any) -> Document:
    return {
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"{name}-ns"}}],
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": user}],
    }


def test_of_several_files_the_first_that_names_something_counts(tmp_path: Path) -> None:
    first = write(tmp_path / "a", {**named("one", "https://one", token="t1"), "current-context": ""})
    second = write(tmp_path / "b", {**named("two", "https://two", token="t2"), "current-context": "two"})
    third = write(tmp_path / "c", {**named("one", "https://else", token="no"), "current-context": "one"})
    missing = tmp_path / "missing"
    access = read(first, missing, second, third)
    assert (access.context, access.cluster.server, access.user.token) == ("two", "https://two", "t2")
    access = read(first, second, third, context="one")
    assert (access.cluster.server, access.user.token, access.namespace) == ("https://one", "t1", "one-ns")
    mixed = read(first, second, context="one", cluster="two", user="two")
    assert (mixed.cluster.server, mixed.user.token) == ("https://two", "t2")
    only = read(first, second, kubeconfig=str(third))
    assert only.cluster.server == "https://else"


def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    document = named("one", "https://one", **{"client-certificate": "pki/me.crt", "client-key": "pki/me.key"})
    document["clusters"][0]["cluster"]["certificate-authority"] = "pki/ca.crt"
    for name in ("me.crt", "me.key", "ca.crt"):
        (tmp_path / "deep" / "pki").mkdir(parents=True, exist_ok=True)
        (tmp_path / "deep" / "pki" / name).write_text(name)
    access = read(write(tmp_path / "deep" / "config", document), context="one")
    assert (access.user.certificate, access.user.key, access.cluster.authority) == ("me.crt", "me.key", "ca.crt")


def test_inline_data_counts_before_files_and_token_files_before_tokens(tmp_path: Path) -> None:
    inline = base64.b64encode(b"inline").decode()
    (tmp_path / "token").write_text("from-file\n")
    document = named(
        "one",
        "https://one",
        token="inline",
        tokenFile="token",
        **{"client-certificate-data": inline, "client-key-data": inline},
    )
    document["users"][0]["user"]["client-certificate"] = "/nowhere"
    access = read(write(tmp_path / "config", document), context="one")
    assert (access.user.token, access.user.certificate) == ("from-file", "inline")


def test_impersonation_of_the_file_and_of_the_command_line(tmp_path: Path) -> None:
    as_user = {"as": "alice", "as-groups": ["a", "b"], "as-uid": "7", "as-user-extra": {"scopes": ["x"]}}
    path = write(tmp_path / "config", {**named("one", "https://one", token="t", **as_user), "current-context": "one"})
    assert dict(read(path).user.headers) == {
        "Impersonate-User": "alice",
        "Impersonate-Group": "b",
        "Impersonate-Uid": "7",
        "Impersonate-Extra-scopes": "x",
    }
    assert read(path, acting_as="bob", acting_groups=("g",)).user.headers == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "g"),
    )


def test_without_a_kubeconfig_a_pod_uses_its_own_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, text in (("token", "t\n"), ("ca.crt", "CA"), ("namespace", "lab")):
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = kubeconfig.read(Choice(), environment, tmp_path)
    assert (access.cluster.server, access.cluster.authority) == ("https://[fd00::1]:443", "CA")
    assert (access.user.token, access.namespace) == ("t", "lab")
    with pytest.raises(RemoteFailure, match="there is no kubeconfig"):
        kubeconfig.read(Choice(), {}, tmp_path)


def test_the_file_below_the_home_is_read_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".kube" / "config", {**named("one", "https://one", token="t"), "current-context": "one"})
    assert kubeconfig.read(Choice(), {}).cluster.server == "https://one"


WRONG: dict[str, tuple[Document, dict[str, Any], str]] = {
    "no current context": (named("one", "https://one"), {}, "no current context"),
    "an unknown context": (named("one", "https://one"), {"context": "two"}, 'no context "two"; there are one'),
    "no server": (named("one", ""), {"context": "one"}, "has no server"),
    "a certificate without its key": (
        named("one", "https://one", **{"client-certificate-data": "YQ=="}),
        {"context": "one"},
        "belong together",
    ),
    "data that is no base64": (
        named("one", "https://one", **{"client-certificate-data": "é", "client-key-data": "YQ=="}),
        {"context": "one"},
        "cannot be read",
    ),
    "a file that is not there": (named("one", "https://one", tokenFile="/nowhere/t"), {"context": "one"}, "/nowhere/t"),
    "an auth provider": (
        named("one", "https://one", **{"auth-provider": {"name": "gcp"}}),
        {"context": "one"},
        "use an exec plugin",
    ),
    "an old plugin": (
        named("one", "https://one", exec={"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}),
        {"context": "one"},
        "unknown apiVersion",
    ),
    "groups without a user": (named("one", "https://one"), {"context": "one", "acting_groups": ("g",)}, "--as"),
    "a list": ({"contexts": ["one"]}, {"context": "one"}, "no object"),
}


@pytest.mark.parametrize("phrase", WRONG)
def test_what_is_wrong_is_told(phrase: str, tmp_path: Path) -> None:
    document, choice, said = WRONG[phrase]
    with pytest.raises(RemoteFailure, match=said):
        read(write(tmp_path / "config", document), **choice)


@pytest.mark.parametrize(("text", "said"), [("a: [", "no YAML"), ("- a", "no kubeconfig"), ("\0", "no YAML")])
def test_a_file_that_is_none_is_told(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(RemoteFailure, match=said):
        read(tmp_path / "config")


# Plugins --------------------------------------------------------------------------------------------------------------

_PRINTS = """\
import json, os, sys
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = {"token": f"{sys.argv[1]} {os.environ['LAB']} {told['spec'].get('cluster', {}).get('server', '-')}"}
print(json.dumps({"kind": "ExecCredential", "apiVersion": told["apiVersion"], "status": status}))
"""


def with_plugin(folder: Path, program: str, **fields: Any) -> Access:
    (folder / "plugin.py").write_text(program)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(folder / "plugin.py"), "arg"],
        "env": [{"name": "LAB", "value": "lab"}],
        "interactiveMode": "Never",
        **fields,
    }
    path = write(folder / "config", document_of("https://lab", {"exec": plugin}))
    return credentials.complete(read(path))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_plugin_prints_a_token(version: str, tmp_path: Path) -> None:
    api = f"client.authentication.k8s.io/{version}"
    assert with_plugin(tmp_path, _PRINTS, apiVersion=api).user.token == "arg lab -"
    assert with_plugin(tmp_path, _PRINTS, apiVersion=api, provideClusterInfo=True).user.token == "arg lab https://lab"


def test_a_plugin_beside_the_kubeconfig(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "login"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\n{_PRINTS}")
    script.chmod(0o700)
    assert with_plugin(tmp_path, "", command="./bin/login").user.token.startswith(str(tmp_path))


PLUGINS: dict[str, tuple[str, dict[str, Any], str]] = {
    "that fails": ("import sys; sys.exit(3)", {}, "exit status 3"),
    "that is not installed": ("", {"command": "no-such-plugin", "installHint": "Get it."}, "not installed\nGet it."),
    "that prints no JSON": ("print('hello')", {}, "no ExecCredential"),
    "that prints a list": ("print('[]')", {}, "no ExecCredential"),
    "that prints nothing of use": (
        'print(\'{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {}}\')',
        {},
        "neither a token",
    ),
    "of another version": (
        'print(\'{"kind": "ExecCredential", "apiVersion": "v9", "status": {"token": "t"}}\')',
        {},
        "was expected",
    ),
    "that wants a terminal": ("", {"interactiveMode": "Always"}, "needs a terminal"),
}


@pytest.mark.parametrize("phrase", PLUGINS)
def test_a_plugin_that_is_of_no_use_is_told(phrase: str, tmp_path: Path) -> None:
    program, fields, said = PLUGINS[phrase]
    with pytest.raises(RemoteFailure, match=said):
        with_plugin(tmp_path, program, **fields)
