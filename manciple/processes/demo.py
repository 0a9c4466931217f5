"""What a first visitor finds: classes for the simulated devices, and a template to claim a GPU with.

Written the way a person would, through `kubectl apply`'s own path, and only where nothing of that name exists: a
changed or deleted demo stays as its owner left it once the namespace is there.
"""

from __future__ import annotations

from importlib import resources

import yaml

from manciple.api import writes
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import registry

NAMESPACE = "demo"
_BUILDER = Identity("manciple:demo", (MASTERS,))


def manifests() -> list[dict[str, object]]:
    """The demo's objects, in the order in which they are made."""
    text = resources.files("manciple.processes").joinpath("demo.yaml").read_text()
    return [document for document in yaml.safe_load_all(text) if document]


def build() -> bool:
    """Make the demo's objects; False where the demo namespace exists already, which means it was made before."""
    if objects.get(registry.by_resource("namespaces"), "", NAMESPACE) is not None:
        return False
    for document in manifests():
        kind = registry.find_kind(str(document["apiVersion"]), str(document["kind"]))
        if kind is None:
            raise LookupError(f"the demo has a {document['kind']} that nobody serves")
        obj = codec.decode_value(kind.type, document)
        if objects.get(kind, obj.metadata.namespace, obj.metadata.name) is None:
            writes.create(kind, obj, namespace=obj.metadata.namespace, identity=_BUILDER)
    return True
