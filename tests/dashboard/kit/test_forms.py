"""Errors of forms, as people read them."""

from __future__ import annotations

import html

import pytest
from django import forms
from django.test import Client

from dashboard.kit.forms import PageForm, plain
from manciple.wire import validation
from manciple.wire.errors import Invalid
from manciple.wire.quantity import FORMAT_MESSAGE
from tests.builders import CLASS, DRIVER, make_namespace, make_taint_rule
from tests.dashboard.browsing import admin
from tests.scheduling.cluster import Cluster

__all__ = ["admin"]

#: What the API says against values -> what people are told to write
RULES = {
    validation.regex_message('Invalid value: "x": a rule', "[a-z](\\.[a-z])?"): 'Invalid value: "x": a rule',
    validation.regex_message("a rule", "[a-z]+", "one"): "a rule (e.g. 'one')",
    validation.regex_message("a rule", "[a-z'()]+", "one"): "a rule (e.g. 'one')",
    f"{validation.regex_message('a key', '[a-z]+', 'one')} with a domain (e.g. 'a/b')": (
        "a key (e.g. 'one') with a domain (e.g. 'a/b')"
    ),
    "Invalid path (regex used for validation is '[a-z$&'*]+')": "Invalid path",
    "must have at most 9 characters and match regex ^[a-z]+$": (
        "must have at most 9 characters, in lower case: letters, digits, '-', '_', '.' and '/'"
    ),
    validation.regex_message("a rule", "[a-z]+", "one", "two", "three"): "a rule (e.g. 'one' or 'two' or 'three')",
    f'Invalid value: "abc": {FORMAT_MESSAGE}': 'Invalid value: "abc": write an amount such as 8, 500m or 10Gi',
    'Invalid value: "-3": must be positive': 'Invalid value: "-3": must be positive',
}


@pytest.mark.parametrize(("said", "told"), RULES.items(), ids=RULES.values())
def test_no_form_quotes_a_regular_expression(said: str, told: str) -> None:
    assert plain(said) == told


METADATA = "metadata: {name: NAME, labels: {a: '-b-'}, namespace: default}"
POD = f"""
apiVersion: v1
kind: Pod
{METADATA.replace("NAME", "Web")}
spec:
  securityContext: {{sysctls: [{{name: Kernel.Shm, value: "1"}}]}}
  containers:
  - name: main
    image: busybox
    livenessProbe: {{httpGet: {{port: 80, httpHeaders: [{{name: a b, value: c}}]}}}}
"""
DEVICE_CLASS = f"""
apiVersion: resource.k8s.io/v1
kind: DeviceClass
{METADATA.replace("NAME", CLASS).replace(", namespace: default", "")}
spec: {{extendedResourceName: example.com/-gpu-}}
"""
RULE = f"""
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
{METADATA.replace("NAME", "repair").replace(", namespace: default", "")}
spec: {{taint: {{key: "-a-", effect: None}}}}
"""
#: Where a text or a form is judged -> what is sent there
JUDGED: dict[str, dict[str, str]] = {
    "/pods/new/diagnostics": {"text": POD, "namespace": "default"},
    "/pods/new/diagnostics?for=what-if": {"text": POD},
    "/pods/new": {"yaml": POD, "action": "check"},
    "/what-if": {"yaml": POD},
    "/pods/new?cpu": {"yaml": POD.replace("image: busybox", "image: a\n    resources: {requests: {cpu: many}}")},
    "/classes/diagnostics/class": {"text": DEVICE_CLASS, "editing": CLASS},
    f"/classes/c/{CLASS}/yaml": {"yaml": DEVICE_CLASS},
    "/classes/new": {"name": "A b"},
    "/yaml/devicetaintrules.resource.k8s.io/repair": {"text": RULE, "base": RULE, "act": "check", "version": "VERSION"},
    "/taint-rules/new": {"name": "A b", "key": "-a-", "effect": "None"},
    "/devices/act/taint": {"at": f"{DRIVER}/node-1/gpu-0", "key": "-a-", "effect": "None", "sure": "1"},
}


@pytest.mark.parametrize("path", JUDGED)
def test_no_page_quotes_a_regular_expression(admin: Client, cluster: Cluster, path: str) -> None:
    cluster.create(make_namespace("default"))
    cluster.with_gpus("node-1", each=1)
    rule = cluster.create(make_taint_rule("repair", pool="node-2"))
    version = rule.metadata.resource_version
    answer = admin.post(path, {name: value.replace("VERSION", version) for name, value in JUDGED[path].items()})
    shown = html.unescape(answer.content.decode())
    assert "alphanumeric" in shown or "10Gi" in shown, "it says in words what is wrong"
    assert "regex" not in shown
    assert "regular expression '" not in shown


class NameForm(PageForm):
    name = forms.CharField()


def test_a_refusal_of_the_api_is_plain_at_its_field() -> None:
    form = NameForm({"name": "Bad Name"})
    cause = {"field": "metadata.name", "message": validation.regex_message("a rule", "[a-z]+", "one")}
    form.add_refusal(Invalid("no", details={"causes": [cause]}))
    form.add_refusal(Invalid("no", details={"causes": [cause]}))
    assert form.errors == {"name": [plain(cause["message"])]}
