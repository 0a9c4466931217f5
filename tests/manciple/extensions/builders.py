"""Definitions and objects that the tests of custom resources send."""

from __future__ import annotations

from typing import Any

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"

Document = dict[str, Any]


def schema(spec: Document, **others: Document) -> Document:
    """Of an object whose spec and other parts have these schemas."""
    return {"type": "object", "properties": {"spec": spec, **others}}


def version(name: str = "v1", /, **members: Any) -> Document:
    found = {"name": name, "served": True, "storage": name == "v1", **members}
    found.setdefault(
        "schema", {"openAPIV3Schema": schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})}
    )
    return found


def definition(*versions: Document, kind: str = "Widget", group: str = "example.com", **spec: Any) -> Document:
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": list(versions) or [version()],
            **spec,
        },
    }


def widget(name: str = "one", /, **content: Any) -> Document:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, **content}


def of_schema(open_schema: Document, **members: Any) -> Document:
    """A definition of one version with that schema."""
    return definition(version(schema={"openAPIV3Schema": open_schema}, **members))
