"""core/v1 LimitRange: what the containers, pods and volumes of a namespace may and must ask for. PURE.

`with_defaults` fills in what containers leave out, `violations` says what is wrong with a pod or a volume's claim.

Sources: k8s.io/api/core/v1, pkg/apis/core/v1/defaults.go (SetDefaults_LimitRangeItem), pkg/apis/core/validation
(ValidateLimitRange), plugin/pkg/admission/limitranger/admission.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any

from msgspec.structs import replace

from claims.kinds import pod_strategy
from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.pods import Pod
from claims.kinds.quotas import validate_resource_name
from claims.kinds.resource_usage import format_of, limits_of, requests_of, validate_container_resource_name
from manciple.wire.base import ApiObject, QuantityText, Value, always, new_uid, pb
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, required
from manciple.wire.quantity import Quantity
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    Path,
    check_label_key,
    each,
    judged_as_new,
    validate_object_meta,
)

PACKAGE = "io.k8s.api.core.v1"

Errors = list[FieldError]

CONTAINER, POD, VOLUME_CLAIM = "Container", "Pod", "PersistentVolumeClaim"
TYPES = (POD, CONTAINER, VOLUME_CLAIM)
STORAGE = "storage"
#: The annotation that tells which amounts were filled in.
FILLED_IN = "kubernetes.io/limit-ranger"


class LimitRangeItem(Value):
    """The limits for one type of thing.

    type: Container, Pod or PersistentVolumeClaim. max, min: of its requests and limits. default: the limits of
    containers without. default_request: the requests of containers without. max_limit_request_ratio: so many times its
    request a limit may be.
    """

    type: Annotated[str, pb(1)] = always("")
    max: Annotated[dict[str, QuantityText], pb(2, encoding="quantity")] = {}
    min: Annotated[dict[str, QuantityText], pb(3, encoding="quantity")] = {}
    default: Annotated[dict[str, QuantityText], pb(4, encoding="quantity")] = {}
    default_request: Annotated[dict[str, QuantityText], pb(5, encoding="quantity")] = {}
    max_limit_request_ratio: Annotated[dict[str, QuantityText], pb(6, encoding="quantity")] = {}


class LimitRangeSpec(Value):
    """limits: at most one of each type."""

    limits: Annotated[tuple[LimitRangeItem, ...], pb(1)] = always(())


class LimitRange(ApiObject):
    """What each container, pod and volume of a namespace may ask for. Namespaced."""

    spec: Annotated[LimitRangeSpec, pb(2)] = always(LimitRangeSpec())


# How it is stored -----------------------------------------------------------------------------------------------------


def create_limit_range(new: LimitRange) -> LimitRange:
    """One without a name gets its uid for a name, as upstream."""
    meta = new.metadata
    if not meta.name and not meta.generate_name:
        new = replace(new, metadata=replace(meta, name=new_uid()))
    return _prepared(new)


def _prepared(new: LimitRange) -> LimitRange:
    return replace(new, spec=LimitRangeSpec(limits=tuple(map(_completed, new.spec.limits))))


def _completed(item: LimitRangeItem) -> LimitRangeItem:
    """Limits default to the maximum, requests to the limits, and then to the minimum."""
    if item.type == CONTAINER:
        default = {**item.max, **item.default}
        item = replace(item, default=default, default_request={**item.min, **default, **item.default_request})
    amounts = {name: _canonical(getattr(item, name)) for name in _LISTS}
    return replace(item, **amounts)


_LISTS = ("max", "min", "default", "default_request", "max_limit_request_ratio")


def _canonical(amounts: Mapping[str, str]) -> dict[str, str]:
    found = dict(amounts)
    for name, text in amounts.items():
        try:
            found[name] = Quantity.parse(text).canonical()
        except ValueError:
            continue
    return found


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_limit_range(new: LimitRange) -> Errors:
    found, types = validate_object_meta(new.metadata, namespaced=True), set[str]()
    for position, item in enumerate(new.spec.limits):
        path = SPEC.child("limits").at(position)
        found += _validate_type(item.type, path.child("type"))
        if item.type in types:
            found.append(duplicate(path.child("type"), item.type))
        types.add(item.type)
        found += _validate_item(item, path)
    return found


def _validate_type(type_: str, path: Path) -> Errors:
    found = each(check_label_key(type_), path, type_)
    if not found and "/" not in type_ and type_ not in TYPES:
        found.append(invalid(path, type_, "must be a standard limit type or fully qualified"))
    return found


def _validate_item(item: LimitRangeItem, path: Path) -> Errors:
    validate_name = validate_container_resource_name if item.type in (POD, CONTAINER) else validate_resource_name
    found: Errors = []
    read: dict[str, dict[str, Quantity]] = {}
    for attribute, shown in _SHOWN.items():
        amounts, at = getattr(item, attribute), path.child(shown)
        if item.type == POD and attribute in ("default", "default_request"):
            found += [forbidden(at, "may not be specified when `type` is 'Pod'")] if amounts else []
            amounts = {}
        read[attribute] = {}
        for name, text in amounts.items():
            found += validate_name(name, at.key(name))
            try:
                read[attribute][name] = Quantity.parse(text)
            except ValueError as error:
                found.append(invalid(at.key(name), text, str(error)))
    if item.type == VOLUME_CLAIM and STORAGE not in item.min and STORAGE not in item.max:
        message = "either minimum or maximum storage value is required, but neither was provided"
        found.append(required(path.child("limits"), message))
    for name in dict.fromkeys(name for amounts in read.values() for name in amounts):
        found += _validate_order({attribute: amounts.get(name) for attribute, amounts in read.items()}, name, path)
    return found


_SHOWN = {
    "max": "max",
    "min": "min",
    "default": "default",
    "default_request": "defaultRequest",
    "max_limit_request_ratio": "maxLimitRequestRatio",
}
#: An attribute as messages name it.
_WORDS = {"min": "min", "max": "max", "default_request": "default request", "default": "default"}
#: (the smaller, the larger, whose field is wrong, whose value is shown)
_ORDER = (
    ("min", "max", "min", "min"),
    ("min", "default_request", "default_request", "default_request"),
    ("default_request", "max", "default_request", "default_request"),
    ("default_request", "default", "default_request", "default_request"),
    ("min", "default", "default", "min"),
    ("default", "max", "default", "max"),
)


def _validate_order(amounts: Mapping[str, Quantity | None], name: str, path: Path) -> Errors:
    """The amounts of one resource among each other."""
    found: Errors = []
    for lower, upper, field, shown in _ORDER:
        small, large = amounts[lower], amounts[upper]
        if small is not None and large is not None and small > large:
            than = "default limit" if (lower, upper) == ("default_request", "default") else _WORDS[upper]
            message = f"{_WORDS[lower]} value {small} is greater than {than} value {large}"
            found.append(invalid(path.child(_SHOWN[field]).key(name), str(amounts[shown]), message))
    default, request = amounts["default"], amounts["default_request"]
    if default is not None and request is not None and default != request and not _may_exceed(name):
        message = f"default value {default} must equal to defaultRequest value {request} in {name}"
        found.append(invalid(path.child("defaultRequest").key(name), str(request), message))
    ratio, least, most = amounts["max_limit_request_ratio"], amounts["min"], amounts["max"]
    if ratio is None:
        return found
    at = path.child("maxLimitRequestRatio").key(name)
    if ratio < _ONE:
        found.append(invalid(at, str(ratio), f"ratio {ratio} is less than 1"))
    if least and most is not None and _quotient(ratio, _ONE) > (largest := _quotient(most, least)):
        message = f"ratio {ratio} is greater than max/min = {largest:.6f}"
        found.append(invalid(at, str(ratio), message))
    return found


_ONE = Quantity.of(1)


def _quotient(left: Quantity, right: Quantity) -> Decimal:
    return Decimal(left.nanos) / right.nanos


def _may_exceed(name: str) -> bool:
    """Whether limits of the resource may be above its requests."""
    return "/" not in name and not name.startswith("hugepages-")


# At work on pods and volumes ------------------------------------------------------------------------------------------


def with_defaults(pod: Pod, ranges: Iterable[LimitRange]) -> Pod:
    """The pod, whose containers have the requests and limits that they left out. Its own defaults come first."""
    if not any(item.type == CONTAINER for one in ranges for item in one.spec.limits):
        return pod
    spec, filled_in = pod_strategy.with_defaults(pod.spec), ""
    for one in ranges:
        limits: dict[str, str] = {}
        requests: dict[str, str] = {}
        for item in one.spec.limits:
            if item.type == CONTAINER:
                limits |= item.default
                requests |= item.default_request
        texts: list[str] = []
        containers = tuple(_filled(each, limits, requests, "container", texts) for each in spec.containers)
        init = tuple(_filled(each, limits, requests, "init container", texts) for each in spec.init_containers)
        spec = replace(spec, containers=containers, init_containers=init)
        filled_in = f"LimitRanger plugin set: {'; '.join(texts)}" if texts else filled_in
    if not filled_in:
        return pod
    annotations = {**pod.metadata.annotations, FILLED_IN: filled_in}
    return replace(pod, spec=spec, metadata=replace(pod.metadata, annotations=annotations))


def _filled(
    container: Container, limits: Mapping[str, str], requests: Mapping[str, str], called: str, texts: list[str]
) -> Container:
    """texts: what was filled in is added to them."""
    resources = container.resources
    for which, amounts, known in (("request", requests, resources.requests), ("limit", limits, resources.limits)):
        if names := sorted(amounts.keys() - known.keys()):
            texts.append(f"{', '.join(names)} {which} for {called} {container.name}")
    return replace(
        container,
        resources=replace(
            resources, limits={**limits, **resources.limits}, requests={**requests, **resources.requests}
        ),
    )


def violations(obj: Any, type_: str, ranges: Iterable[LimitRange]) -> list[str]:
    """What is wrong with a pod, or with a PersistentVolumeClaim, and the limits. type_: POD or VOLUME_CLAIM."""
    items = [item for one in ranges for item in one.spec.limits]
    if type_ == VOLUME_CLAIM:
        amounts = ResourceRequirements(requests=obj.spec.resources.requests)
        return [text for item in items if item.type == type_ for text in _beyond_request(item, amounts)]
    found: list[str] = []
    for item in items:
        if item.type == CONTAINER:
            for container in (*obj.spec.containers, *obj.spec.init_containers):
                found += _beyond(item, container.resources)
        elif item.type == POD:
            found += _beyond(item, _of_pod(obj, {*item.min, *item.max, *item.max_limit_request_ratio}))
    return found


def _of_pod(pod: Pod, names: Iterable[str]) -> ResourceRequirements:
    """What the pod requests, and its limits: of these resources."""
    requests, limits = requests_of(pod), limits_of(pod)
    return ResourceRequirements(
        requests={
            name: Quantity(requests[name], format_of(name, pod.spec)).canonical() for name in names if name in requests
        },
        limits={
            name: Quantity(limits[name], format_of(name, pod.spec, "limits")).canonical()
            for name in names
            if name in limits
        },
    )


def _beyond(item: LimitRangeItem, has: ResourceRequirements) -> Iterator[str]:
    for name, least in _read(item.min):
        yield from _below(name, least, item.type, has)
    for name, most in _read(item.max):
        yield from _above(name, most, item.type, has)
    for name, ratio in _read(item.max_limit_request_ratio):
        yield from _out_of_ratio(name, ratio, item.type, has)


def _beyond_request(item: LimitRangeItem, has: ResourceRequirements) -> Iterator[str]:
    """Of a volume, which has no limit."""
    request = _amount(has.requests, STORAGE)
    for word, bounds in (("minimum", item.min), ("maximum", item.max)):
        if STORAGE not in bounds:
            continue
        bound = Quantity.parse(bounds[STORAGE])
        said = f"{word} {STORAGE} usage per {item.type} is {bound}"
        if request is None:
            yield f"{said}.  No request is specified"
        elif (request < bound) if word == "minimum" else (request > bound):
            yield f"{said}, but request is {request}"


def _below(name: str, least: Quantity, type_: str, has: ResourceRequirements) -> Iterator[str]:
    said, request, limit = f"minimum {name} usage per {type_} is {least}", *_amounts(has, name)
    if request is None:
        yield f"{said}.  No request is specified"
    elif request < least:
        yield f"{said}, but request is {request}"
    elif limit is not None and limit < least:
        yield f"{said}, but limit is {limit}"


def _above(name: str, most: Quantity, type_: str, has: ResourceRequirements) -> Iterator[str]:
    said, request, limit = f"maximum {name} usage per {type_} is {most}", *_amounts(has, name)
    if limit is None:
        yield f"{said}.  No limit is specified"
    elif limit > most:
        yield f"{said}, but limit is {limit}"
    elif request is not None and request > most:
        yield f"{said}, but request is {request}"


def _out_of_ratio(name: str, most: Quantity, type_: str, has: ResourceRequirements) -> Iterator[str]:
    said, request, limit = f"{name} max limit to request ratio per {type_} is {most}", *_amounts(has, name)
    if not request:
        yield f"{said}, but no request is specified or request is 0"
    elif not limit:
        yield f"{said}, but no limit is specified or limit is 0"
    elif limit.nanos * _ONE.nanos > most.nanos * request.nanos:
        yield f"{said}, but provided ratio is {_quotient(limit, request):.6f}"


def _amounts(has: ResourceRequirements, name: str) -> tuple[Quantity | None, Quantity | None]:
    return _amount(has.requests, name), _amount(has.limits, name)


def _amount(amounts: Mapping[str, str], name: str) -> Quantity | None:
    return Quantity.parse(amounts[name]) if name in amounts else None


def _read(amounts: Mapping[str, str]) -> Iterator[tuple[str, Quantity]]:
    return ((name, Quantity.parse(amounts[name])) for name in sorted(amounts))


LIMIT_RANGE = Kind(
    group="",
    version="v1",
    plural="limitranges",
    short_names=("limits",),
    type=LimitRange,
    prepare_create=create_limit_range,
    prepare_update=lambda new, _old: _prepared(new),
    validate_create=validate_limit_range,
    validate_update=judged_as_new(validate_limit_range),
    policy_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        Column(name="Created At", type="date", cell=lambda one, _now: one.metadata.creation_timestamp or ""),
    ),
    description="What each container, pod and volume of a namespace may ask for.",
)
