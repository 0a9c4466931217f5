"""Validates a Simulation, and gives its objects the defaults that the API would give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from manciple.wire.base import ApiObject
from manciple.wire.errors import FieldError, Invalid, duplicate, forbidden, invalid, required
from manciple.wire.resources import NODES, PODS, SLICES, kind
from manciple.wire.validation import check_dns_subdomain
from scheduling.rehearsal.autoscaling.kinds import GROUP, NodeTemplate, SimulatedPod, Simulation
from scheduling.rehearsal.simulation import MOST_REPLICAS

#: Node templates of one question, and nodes of one template.
MOST_TEMPLATES, MOST_NODES = 20, 1_000
#: Pods and claims that do not exist belong to this namespace unless they name another.
DEFAULT_NAMESPACE = "default"


def prepared(asked: Simulation, *, below: bool) -> Simulation:
    """The question as it is answered. below: it was posted below a pod or a claim, and names no others.

    Raises: Invalid.
    """
    spec = asked.spec
    made = structs.replace(
        asked,
        spec=structs.replace(
            spec,
            new_pods=tuple(_with_defaults(one) for one in spec.new_pods),
            node_templates=tuple(_named(one) for one in spec.node_templates),
        ),
    )
    wrong = [*_subject_errors(made, below=below), *_template_errors(made)]
    if wrong:
        raise Invalid.of(kind="Simulation", group=GROUP, name=asked.metadata.name, errors=wrong)
    return made


def _with_defaults(one: SimulatedPod) -> SimulatedPod:
    meta = one.pod.metadata
    pod = structs.replace(one.pod, metadata=structs.replace(meta, namespace=meta.namespace or DEFAULT_NAMESPACE))
    return structs.replace(one, pod=kind(PODS).prepare_create(pod))


def _named(one: NodeTemplate) -> NodeTemplate:
    """Its node is called as the template is, and its slices are named, where they are not."""
    if one.node is None:
        return one
    meta = one.node.metadata
    node = structs.replace(one.node, metadata=structs.replace(meta, name=meta.name or one.name))
    slices = (
        structs.replace(published, metadata=structs.replace(published.metadata, name=f"{one.name}-{at}"))
        for at, published in enumerate(one.resource_slices)
    )
    prepare = kind(SLICES).prepare_create
    return structs.replace(
        one, node=kind(NODES).prepare_create(node), resource_slices=tuple(prepare(published) for published in slices)
    )


# Which pods -----------------------------------------------------------------------------------------------------------


def _subject_errors(asked: Simulation, *, below: bool) -> Iterator[FieldError]:
    spec = asked.spec
    if below:
        for name, given in (("pods", spec.pods), ("newPods", spec.new_pods), ("scaleDown", spec.scale_down)):
            if given:
                yield forbidden(f"spec.{name}", "a simulation below an object covers only that object")
        yield from _number("spec.replicas", 1 if spec.replicas is None else spec.replicas, MOST_REPLICAS)
    elif spec.replicas is not None:
        yield forbidden("spec.replicas", "may only be set below a pod or a claim; newPods have replicas of their own")
    for at, one in enumerate(spec.pods):
        for name, text in (("namespace", one.namespace), ("name", one.name)):
            if not text:
                yield required(f"spec.pods[{at}].{name}")
    for at, new in enumerate(spec.new_pods):
        path = f"spec.newPods[{at}]"
        yield from _number(f"{path}.replicas", new.replicas, MOST_REPLICAS)
        yield from _inside(f"{path}.pod", kind(PODS).validate_create(new.pod))
    asked_for = sum(new.replicas for new in spec.new_pods)
    if asked_for > MOST_REPLICAS:
        yield invalid("spec.newPods", asked_for, f"must be at most {MOST_REPLICAS} pods in all")


def _number(path: str, number: int, most: int) -> Iterator[FieldError]:
    if not 1 <= number <= most:
        yield invalid(path, number, f"must be between 1 and {most}, inclusive")


# Which nodes ----------------------------------------------------------------------------------------------------------


def _template_errors(asked: Simulation) -> Iterator[FieldError]:
    templates = asked.spec.node_templates
    if len(templates) > MOST_TEMPLATES:
        yield invalid("spec.nodeTemplates", len(templates), f"must have at most {MOST_TEMPLATES} items")
    seen: set[str] = set()
    for at, one in enumerate(templates):
        path = f"spec.nodeTemplates[{at}]"
        if one.name in seen:
            yield duplicate(f"{path}.name", one.name)
        seen.add(one.name)
        yield from _own_errors(one, path)


def _own_errors(one: NodeTemplate, path: str) -> Iterator[FieldError]:
    if not one.name:
        yield required(f"{path}.name")
    for problem in check_dns_subdomain(one.name) if one.name else ():
        yield invalid(f"{path}.name", one.name, problem)
    if bool(one.like) == (one.node is not None):
        yield invalid(path, one.name, "exactly one of `like` and `node` is required")
    if one.max_nodes is not None:
        yield from _number(f"{path}.maxNodes", one.max_nodes, MOST_NODES)
    if one.cost is not None and one.cost < 0:
        yield invalid(f"{path}.cost", one.cost, "must be greater than or equal to 0")
    if one.node is not None:
        yield from _described_errors(one.node, one.resource_slices, path)
    elif one.resource_slices:
        yield forbidden(f"{path}.resourceSlices", "a node that is `like` another publishes the same devices")


def _described_errors(node: Node, slices: Iterable[ResourceSlice], path: str) -> Iterator[FieldError]:
    yield from _inside(f"{path}.node", _errors_of(NODES, node))
    for at, published in enumerate(slices):
        here = f"{path}.resourceSlices[{at}]"
        yield from _inside(here, _errors_of(SLICES, published))
        if published.spec.node_name != node.metadata.name:
            yield invalid(
                f"{here}.spec.nodeName", published.spec.node_name, f"must be {node.metadata.name}, the node's"
            )


def _errors_of(resource: str, obj: ApiObject) -> Iterable[FieldError]:
    return kind(resource).validate_create(obj)


def _inside(path: str, errors: Iterable[FieldError]) -> Iterator[FieldError]:
    for error in errors:
        yield structs.replace(error, field=f"{path}.{error.field}")
