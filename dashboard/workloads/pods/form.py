"""The form for a pod: what stands in it, the YAML that says the same, and the API's complaints at its fields.

Devices come from a template that exists, or from one that the form makes beside the pod for a class and a number; so
that the claim comes and goes with the pod.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from django import forms

from claims.kinds.resource_claims import ResourceClaimTemplate, ResourceClaimTemplateSpec
from dashboard.kit.differences import dump
from dashboard.kit.forms import PageForm, code_input
from dashboard.workloads.pods.documents import DocumentProblem
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.quantity import whole
from manciple.wire.resources import TEMPLATES, kind

#: How the pod's entry for its devices, and the request in the claim, are called.
ENTRY, REQUEST = "devices", "device"


#: The field of the form -> what it is called where a browser sends it.
_SENT_AS = {"device_class": "class"}
_NO_NUMBER = "Write a whole number, 1 or more."
_NO_SOURCE = "Choose where the devices come from."


class PodForm(PageForm):
    ids = "f-%s"
    use_required_attribute = False  # what is missing is told beside each field, and "Continue as YAML" needs nothing

    name = forms.CharField(widget=code_input("trainer"), error_messages={"required": "Give the pod a name."})
    namespace = forms.CharField(
        widget=forms.Select({"class": "input"}), error_messages={"required": "Choose a namespace."}
    )
    image = forms.CharField(
        widget=code_input("registry.example.org/team/trainer:1.0"),
        error_messages={"required": "Name the image that the container runs."},
    )
    command = forms.CharField(required=False, widget=code_input("python train.py --epochs 3"))
    devices = forms.ChoiceField(
        choices=[(one, one) for one in ("class", "template", "none")],
        initial="class",
        error_messages={"required": _NO_SOURCE, "invalid_choice": _NO_SOURCE},
    )
    device_class = forms.CharField(required=False, widget=forms.Select({"class": "input"}))
    count = forms.CharField(
        required=False, initial="1", widget=forms.NumberInput({"class": "input", "min": "1", "max": "32"})
    )
    template = forms.CharField(required=False, widget=forms.Select({"class": "input"}))

    def add_prefix(self, field_name: str) -> str:
        return super().add_prefix(_SENT_AS.get(field_name, field_name))

    def offer(self, *, namespaces: Iterable[str], classes: Iterable[str], templates: Sequence[tuple[str, str]]) -> None:
        """What may be chosen. templates: (namespace, name), by namespace."""
        grouped = groupby(templates, key=lambda one: one[0])
        named: dict[str, list[Any]] = {
            "namespace": [(one, one) for one in namespaces],
            "device_class": [("", "Choose a class"), *((one, one) for one in classes)],
            "template": [
                ("", "Choose a template"),
                *((namespace, [(name, name) for _, name in group]) for namespace, group in grouped),
            ],
        }
        for name, choices in named.items():
            cast("forms.Select", self.fields[name].widget).choices = choices

    def clean(self) -> None:
        """What has to be filled in besides depends on where the devices come from."""
        devices, count = self.text("devices"), self.text("count")
        if devices == "class":
            if not self.text("device_class"):
                self.add_error("device_class", "Choose a class.")
            if not whole(count):
                self.add_error("count", _NO_NUMBER)
        if devices == "template" and not self.text("template"):
            self.add_error("template", "Choose a template.")

    #: the template that the pod names, where not the one that is called after it; and whether that exists already
    named_template: str = ""
    reuses_template: bool = False

    def settle_template(self, known: Mapping[str, ResourceClaimTemplateSpec]) -> None:
        """An earlier pod of this name may have left its template. One that says the same is used again; where it says
        something else, the new one gets another name. known: those of the namespace, by name.
        """
        wanted = _spec_of(_template(self))
        name, number = self.own_template, 1
        while name in known and known[name] != wanted:
            number += 1
            name = f"{self.own_template}-{number}"
        self.named_template, self.reuses_template = name, name in known

    @property
    def own_template(self) -> str:
        """The name of the template that the form makes."""
        name = self.text("name")
        return self.named_template or (f"{name}-{ENTRY}" if name else ENTRY)


def documents(form: PodForm) -> list[dict[str, Any]]:
    """What the form describes, in the order in which it is created."""
    pod = _pod(form)
    makes = form.text("devices") == "class" and not form.reuses_template
    return [_template(form), pod] if makes else [pod]


def as_yaml(form: PodForm) -> str:
    return "\n---\n".join(dump(one) for one in documents(form)) + "\n"


def _pod(form: PodForm) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": form.text("image")}
    if command := _words(form.text("command")):
        container["command"] = command
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    devices = form.text("devices")
    if devices != "none":
        container["resources"] = {"claims": [{"name": ENTRY}]}
        name = form.own_template if devices == "class" else form.text("template")
        spec["resourceClaims"] = [{"name": ENTRY, "resourceClaimTemplateName": name}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _meta(form, form.text("name")), "spec": spec}


def _template(form: PodForm) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": form.text("device_class")}
    if (count := form.text("count")) != "1":
        number = whole(count)
        exactly["count"] = count if number is None else number
    requests = [{"name": REQUEST, "exactly": exactly}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": _meta(form, form.own_template),
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def _spec_of(template: dict[str, Any]) -> ResourceClaimTemplateSpec | None:
    """As it would be stored; None where it says nothing that could be."""
    try:
        read = codec.decode_document(kind(TEMPLATES), template, strictness="Strict").object
    except ApiError:
        return None
    return cast("ResourceClaimTemplate", kind(TEMPLATES).prepare_create(read)).spec


def _meta(form: PodForm, name: str) -> dict[str, str]:
    namespace = form.text("namespace")
    return {"name": name} | ({"namespace": namespace} if namespace else {})


def _words(command: str) -> list[str]:
    """As a shell would split it; where its quotes do not match, at blanks."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


#: end of the API's path -> field of the form
_FIELDS = (
    ("metadata.name", "name"),
    ("metadata.namespace", "namespace"),
    (".image", "image"),
    (".command", "command"),
    (".count", "count"),
    (".deviceClassName", "device_class"),
    (".resourceClaimTemplateName", "template"),
)


def complain(form: PodForm, problems: Iterable[DocumentProblem]) -> None:
    """Put what the API says at the fields that it is about; at the form itself where that is no single one."""
    for problem in sorted(problems, key=lambda one: one.kind != "Pod"):
        name = next((name for end, name in _FIELDS if f".{problem.field}".endswith(end)), None)
        follows = ".resourceClaims[" in f".{problem.field}" or (name == "name" and name in form.errors)
        if form.text("devices") == "class" and follows:
            continue  # the names of template and claim follow that of the pod, about which the same is said
        text = problem.message.removeprefix(f"{problem.field}: ")
        said = form.errors.get(name) if name else form.non_field_errors()
        if text not in (said or ()):
            form.add_error(name, text)
