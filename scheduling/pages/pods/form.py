"""The form for a pod: from what a browser sends to the YAML that says the same, and errors back to their fields. PURE.

Devices come from a template that exists, or from one that the form makes beside the pod for a class and a number; so
that the claim comes and goes with the pod.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduling.pages.history.differences import dump
from scheduling.pages.pods.documents import DocumentProblem

#: How the pod's entry for its devices, and the request in the claim, are called.
ENTRY, REQUEST = "devices", "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodForm:
    """What stands in the form. devices: "class", "template" or "none"."""

    name: str = ""
    namespace: str = ""
    image: str = ""
    command: str = ""
    devices: str = "class"
    device_class: str = ""
    count: str = "1"
    template: str = ""

    @classmethod
    def of(cls, data: Mapping[str, str]) -> PodForm:
        return cls(
            name=data.get("name", "").strip(),
            namespace=data.get("namespace", "").strip(),
            image=data.get("image", "").strip(),
            command=data.get("command", "").strip(),
            devices=data.get("devices", "class"),
            device_class=data.get("class", "").strip(),
            count=data.get("count", "1").strip(),
            template=data.get("template", "").strip(),
        )

    @property
    def own_template(self) -> str:
        """The name of the template that the form makes."""
        return f"{self.name}-{ENTRY}" if self.name else ENTRY


def documents(form: PodForm) -> list[dict[str, Any]]:
    """What the form describes, in the order in which it is created."""
    pod = _pod(form)
    return [_template(form), pod] if form.devices == "class" else [pod]


def as_yaml(form: PodForm) -> str:
    return "\n---\n".join(dump(one) for one in documents(form)) + "\n"


def _pod(form: PodForm) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": form.image}
    if command := _words(form.command):
        container["command"] = command
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if form.devices != "none":
        container["resources"] = {"claims": [{"name": ENTRY}]}
        name = form.own_template if form.devices == "class" else form.template
        spec["resourceClaims"] = [{"name": ENTRY, "resourceClaimTemplateName": name}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _meta(form, form.name), "spec": spec}


def _template(form: PodForm) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": form.device_class}
    if form.count != "1":
        exactly["count"] = int(form.count) if form.count.isdecimal() else form.count
    requests = [{"name": REQUEST, "exactly": exactly}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": _meta(form, form.own_template),
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def _meta(form: PodForm, name: str) -> dict[str, str]:
    return {"name": name} | ({"namespace": form.namespace} if form.namespace else {})


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
    (".deviceClassName", "class"),
    (".resourceClaimTemplateName", "template"),
)


def missing(form: PodForm) -> dict[str, str]:
    """What a person has to fill in yet, by field."""
    wanted = {"name": form.name, "namespace": form.namespace, "image": form.image}
    if form.devices == "class":
        wanted["class"] = form.device_class
    if form.devices == "template":
        wanted["template"] = form.template
    said = {
        "name": "Give the pod a name.",
        "namespace": "Choose a namespace.",
        "image": "Name the image that the container runs.",
        "class": "Choose a class.",
        "template": "Choose a template.",
    }
    found = {name: said[name] for name, value in wanted.items() if not value}
    if form.devices == "class" and not (form.count.isdecimal() and int(form.count) > 0):
        found["count"] = "Write a whole number, 1 or more."
    return found


def by_field(form: PodForm, problems: Iterable[DocumentProblem]) -> dict[str, list[str]]:
    """Messages by field of the form; "" for those that concern no single one."""
    found: dict[str, list[str]] = {}
    for problem in sorted(problems, key=lambda one: one.kind != "Pod"):
        name = next((name for end, name in _FIELDS if f".{problem.field}".endswith(end)), "")
        follows = ".resourceClaims[" in f".{problem.field}" or (name == "name" and name in found)
        if form.devices == "class" and follows:
            continue  # the names of template and claim follow that of the pod, about which the same is said
        text = problem.message.removeprefix(f"{problem.field}: ")
        if text not in found.setdefault(name, []):
            found[name].append(text)
    return found
