"""What every value of the API is made of: frozen, typed structs that carry their protobuf field numbers.

A kind is declared once, as a tree of `Value`s. JSON and protobuf decoding, strict-field checks, OpenAPI schemas and
`kubectl explain` all derive from that one declaration:

    class DeviceToleration(Value):
        key: Annotated[str, pb(1)] = ""
        operator: Annotated[str, pb(2)] = ""

Conventions:
- attributes are snake_case in Python and camelCase on the wire (`msgspec.field(name="shareID")` where that is wrong);
- a Go pointer, or a Go scalar whose zero value differs from "absent", is `T | None = None`; other strings are "";
- a Go slice is a `tuple[T, ...]`, a Go map a `dict[str, T]`; absent and empty are the same value;
- a non-pointer struct defaults to its empty value and may be left out;
- a field that Go writes even when it is zero (no `omitempty`), and that clients insist on, defaults to `always(zero)`;
- values are never changed in place: `msgspec.structs.replace` makes the next one.

What a type declares about each of its fields is read once, from msgspec's own view of it (`declarations`).

UIDs and the random parts of names come from the kernel, many at a time: each call to it releases the interpreter lock,
and taking that again costs far more than the call.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from random import SystemRandom
from sys import intern
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, dataclass_transform
from uuid import UUID

import msgspec
from msgspec import inspect
from msgspec.structs import force_setattr, replace

from manciple.per_process import PerProcess

# msgspec describes a struct to itself when a decoder of it is made, or its description is asked for. If another thread
# meets a struct that is half described, the interpreter crashes: one thread at a time.
_describing = threading.RLock()


def type_info(type_: Any) -> inspect.Type:
    with _describing:
        return inspect.type_info(type_)


@cache
def json_decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    with _describing:
        return msgspec.json.Decoder(type_)


#: Any JSON value that the API carries without looking inside (runtime.RawExtension, FieldsV1, IntOrString aside).
Raw = Any
#: A set of fields as JSON text (`manciple.wire.managed_fields`): part of every document, and rarely read.
FieldsV1 = msgspec.Raw
NO_FIELDS = FieldsV1(b"")
#: Integers as Go bounds them; JSON numbers beyond are refused.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

#: An amount as text ("80Gi"); read with `manciple.wire.quantity`. JSON numbers are accepted and kept as text.
QuantityText = str
#: RFC 3339 text in UTC, seconds (Time) or microseconds (MicroTime), as it stands on the wire.
TimeText = str

#: Where OpenAPI names the types of this module; every module that declares values has a PACKAGE.
PACKAGE = "io.k8s.apimachinery.pkg.apis.meta.v1"

#: What the names of fields begin with that are stored and that not every version shows (`aside`).
ASIDE = "~"
#: As a merge_key: a strategic merge patch adds to a list of scalars (merge without a key), or replaces an object whole.
MERGE_SCALARS, REPLACED = "*", "="

#: A time, as Go reads it.
RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")

Field = TypeVar("Field")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """An API value. `gc=False` because documents are trees: they cannot hold reference cycles.

    Where Go embeds a struct (`json:",inline"`), the embedding value inherits from the embedded one, and `EMBEDS` names
    it with its protobuf field number: JSON shows its fields among the others, protobuf nests them in one message.

    The docstring is the type's description in OpenAPI and `kubectl explain`, so it is written for users: its first
    paragraph is about the type, and what follows a field's name and a colon, to the end of the paragraph, about that
    field. Names of fields are shown as in JSON.
    """

    EMBEDS: ClassVar[tuple[type[Value], int] | None] = None
    #: another version's type, whose docstring describes the fields that both have
    DESCRIBED_AS: ClassVar[type[Value] | None] = None
    #: the name in OpenAPI where it is not PACKAGE and the class's name
    SCHEMA: ClassVar[str] = ""
    #: one field to server-side apply (x-kubernetes-map-type: atomic); subclasses are not (`is_atomic`)
    ATOMIC: ClassVar[bool] = False


def pb(
    number: int,
    *,
    encoding: str = "",
    merge_key: str = "",
    retain_keys: bool | Callable[[], bool] = False,
    list_keys: str = "",
    within: int = 0,
    list_number: int = 0,
    undocumented: bool | Callable[[], bool] = False,
    known: Callable[[], bool] | None = None,
) -> msgspec.Meta:
    """The protobuf field number of an annotated field, and how its list is merged.

    `encoding`: "bytes" where Go has []byte (base64 in JSON), or the name of a wrapper ("quantity", "time",
    "microTime", "intOrString", "raw", "fieldsV1", "jsonSchema") where the JSON form is a scalar or
    raw JSON but the protobuf form is a message; of a list or map it describes the elements. "strings": the elements of
    a map are lists of strings. "name": a string that clients may also write as an object with that name.
    `merge_key`: the patchMergeKey of a strategic merge patch ("" replaces the list whole; the name of no field,
    MERGE_SCALARS, merges a list of scalars as a set; REPLACED, of an object, replaces it whole).
    `retain_keys`: a patch of one element lists all fields it is to keep (patchStrategy=retainKeys), or whether it does.
    `list_keys`: the list-map-keys of server-side apply where they differ from the merge key, comma separated.
    `within`: the number of the message that protobuf nests it in, of a field that stands among the others in JSON.
    `list_number`: of an object in whose place a list may stand: the list's; OpenAPI tells of the object alone.
    `undocumented`: OpenAPI does not describe it, or whether it does not.
    `known`: whether clients may name the field; while they may not, it is unknown to them, and stored ones stay.
    """
    return msgspec.Meta(
        extra={
            "pb": number,
            "encoding": encoding,
            "merge_key": merge_key,
            "retain_keys": retain_keys,
            "list_keys": list_keys,
            "within": (within,) if within else (),
            "list_number": list_number,
            "undocumented": undocumented,
            "known": known,
        }
    )


def always(zero: Field) -> Field:
    """The default of a field that is served even when it is zero, as Go does without `omitempty`."""
    return msgspec.field(default_factory=lambda: zero)


def aside(name: str, default: Field) -> Field:
    """A field that is stored with the object and belongs to some of its versions only.

    The others neither show nor lose it: to their clients it is unknown, OpenAPI does not describe it, protobuf has no
    number for it, and a write through them leaves it as it is (`manciple.wire.registry.Conversion`).
    """
    return msgspec.field(default=default, name=f"{ASIDE}{name}")


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as metav1.Time."""
    return _second_text(math.floor(moment.timestamp()))


@lru_cache(64)
def _second_text(second: int) -> str:
    """Each write has several times of the same second."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_text(raw: str, *, micro: bool) -> str:
    """An RFC 3339 time as UTC text, with seconds or microseconds. Raises: ValueError."""
    if not RFC3339.fullmatch(raw):
        raise ValueError(f'parsing time "{raw}" as RFC 3339: cannot parse')
    text = datetime.fromisoformat(raw).astimezone(UTC).isoformat(timespec="microseconds" if micro else "seconds")
    return text.removesuffix("+00:00") + "Z"


class OwnerReference(Value):
    """An owner of the object, which is deleted with its owners.

    api_version: of the owner, GROUP/VERSION. kind: of the owner. name: of the owner. uid: of the owner.
    controller: it is this owner that manages the object. block_owner_deletion: a foreground deletion of the owner
    waits for the object.
    """

    ATOMIC: ClassVar = True

    api_version: Annotated[str, pb(5)] = ""
    kind: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(3)] = ""
    uid: Annotated[str, pb(4)] = ""
    controller: Annotated[bool | None, pb(6)] = None
    block_owner_deletion: Annotated[bool | None, pb(7)] = None


class ManagedFieldsEntry(Value):
    """The fields that one manager has set in one way.

    manager: who set the fields. operation: Apply or Update. api_version: of the fields' names. time: when they were
    last set. fields_type: FieldsV1. fields_v1: the fields. subresource: by which they were set; empty for the object
    itself.
    """

    manager: Annotated[str, pb(1)] = ""
    operation: Annotated[str, pb(2)] = ""
    api_version: Annotated[str, pb(3)] = ""
    time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    fields_type: Annotated[str, pb(6)] = ""
    fields_v1: Annotated[FieldsV1, pb(7, encoding="fieldsV1")] = msgspec.field(default=NO_FIELDS, name="fieldsV1")
    subresource: Annotated[str, pb(8)] = ""


class ObjectMeta(Value):
    """name: unique in the namespace and kind. generate_name: a prefix; the server makes the name when there is none.
    namespace: empty for kinds that live in none. self_link: no longer served. uid: unlike that of any other object,
    ever. resource_version: changes with every write; a write that names an older one is refused. generation: changes
    with the wanted state. creation_timestamp: set by the server. deletion_timestamp: set by a deletion that
    finalizers or grace hold. deletion_grace_period_seconds: how long the object may take to end. labels: what
    selectors look at. annotations: any text, for tools. owner_references: the object goes when all owners are gone.
    finalizers: a deleted object stays until these are taken off. managed_fields: who set which field, for
    server-side apply.
    """

    name: Annotated[str, pb(1)] = ""
    generate_name: Annotated[str, pb(2)] = ""
    namespace: Annotated[str, pb(3)] = ""
    self_link: Annotated[str, pb(4)] = ""
    uid: Annotated[str, pb(5)] = ""
    resource_version: Annotated[str, pb(6)] = ""
    generation: Annotated[Int64, pb(7)] = 0
    creation_timestamp: Annotated[TimeText | None, pb(8, encoding="time")] = None
    deletion_timestamp: Annotated[TimeText | None, pb(9, encoding="time")] = None
    deletion_grace_period_seconds: Annotated[Int64 | None, pb(10)] = None
    labels: Annotated[dict[str, str], pb(11)] = {}
    annotations: Annotated[dict[str, str], pb(12)] = {}
    owner_references: Annotated[tuple[OwnerReference, ...], pb(13, merge_key="uid")] = ()
    finalizers: Annotated[tuple[str, ...], pb(14, merge_key=MERGE_SCALARS)] = ()
    managed_fields: Annotated[tuple[ManagedFieldsEntry, ...], pb(17)] = ()


class ApiObject(Value, gc=True, weakref=True):
    """The head of every kind. Subclasses add `spec`, `status` and the like, with `metadata` as protobuf field 1."""

    api_version: str = ""
    kind: str = ""
    metadata: Annotated[ObjectMeta, pb(1)] = ObjectMeta()

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)"""
        return self.metadata.namespace, self.metadata.name


class OpenObject(ApiObject):
    """An object of a kind that no type declares. content: what it holds beside its head, by the names in JSON.

    How its documents are read and written is `codec`'s business: in JSON the content stands beside the head.
    """

    content: dict[str, Any] = {}


class Condition(Value):
    """One observed aspect of an object. `status`: True, False or Unknown; `reason`: a CamelCase word.

    type: which aspect.
    """

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    observed_generation: Annotated[Int64, pb(3)] = 0
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    reason: Annotated[str, pb(5)] = always("")
    message: Annotated[str, pb(6)] = always("")


class _Typed(Protocol):
    @property
    def type(self) -> str: ...


TypedT = TypeVar("TypedT", bound=_Typed)


def condition_of(conditions: Iterable[TypedT], type_: str) -> TypedT | None:
    """The condition of that type; None without one. For the conditions of pods, groups, claims and all others."""
    return next((condition for condition in conditions if condition.type == type_), None)


class LabelSelectorRequirement(Value):
    """One test of a label. `operator`: In, NotIn, Exists or DoesNotExist.

    key: the key of the label. values: for In and NotIn.
    """

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    values: Annotated[tuple[str, ...], pb(3)] = ()


class LabelSelector(Value):
    """Labels and requirements that must all hold; an empty one matches everything, an absent one nothing.

    match_labels: labels with exactly these values.
    """

    ATOMIC: ClassVar = True

    match_labels: Annotated[dict[str, str], pb(1)] = {}
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], pb(2)] = ()


class ObjectReference(Value):
    """An object of any kind, or a part of it.

    kind: the kind of the object. namespace: the namespace of the object. name: the name of the object. uid: the uid of
    the object. api_version: of its kind. resource_version: the resource version of the object. field_path: a part of
    it, such as spec.containers{main}.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.ObjectReference"
    ATOMIC: ClassVar = True

    kind: Annotated[str, pb(1)] = ""
    namespace: Annotated[str, pb(2)] = ""
    name: Annotated[str, pb(3)] = ""
    uid: Annotated[str, pb(4)] = ""
    api_version: Annotated[str, pb(5)] = ""
    resource_version: Annotated[str, pb(6)] = ""
    field_path: Annotated[str, pb(7)] = ""


class LocalObjectReference(Value):
    """An object of the same namespace.

    name: the name of the object.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.LocalObjectReference"
    ATOMIC: ClassVar = True

    name: Annotated[str, pb(1)] = ""


def status_metadata(new: ObjectMeta, old: ObjectMeta) -> ObjectMeta:
    """The metadata after a write of a status: all as it was, but the revision and uid that the writer expects stay
    those of the request, so that the store can refuse a stale one (upstream: ResetObjectMetaForStatus).
    """
    return replace(
        old,
        uid=new.uid or old.uid,
        resource_version=new.resource_version,
        managed_fields=new.managed_fields,
    )


# Declarations ---------------------------------------------------------------------------------------------------------


Container = Literal["", "list", "map"]

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A type without its name: what one value, or each element of a list or map, is.

    element: bool, int, str, a `Value` subclass, or object where any JSON (or int | str) may stand.
    """

    container: Container = ""
    element: type
    bits: Literal[32, 64] = 64  # of an int
    optional: bool = False  # None is a value of its own: absent
    or_object: bool = False  # any JSON object may stand in place of the list; OpenAPI and protobuf know the list alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One field of a `Value`."""

    attribute: str  # in Python
    name: str  # in JSON
    number: int  # in protobuf; 0 for apiVersion and kind, which protobuf keeps in the envelope
    embedded: tuple[int, ...] = ()  # the numbers of the embedded messages around the field in protobuf, outermost first
    encoding: str = ""
    shape: Shape
    default: Any = None
    merge_key: str = ""
    retain_keys: bool | Callable[[], bool] = False
    list_keys: tuple[str, ...] = ()
    aside: bool = False  # only some versions show it
    as_list: Declaration | None = None  # a list that may stand in place of the object
    undocumented: bool | Callable[[], bool] = False
    known: Callable[[], bool] | None = None


@cache
def declarations(type_: type[Value]) -> tuple[Declaration, ...]:
    """The fields of a type in the order of their declaration, embedded ones first."""
    info = type_info(type_)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{type_!r} is not a Value")
    embedded, number = type_.EMBEDS if type_.EMBEDS and "EMBEDS" in type_.__dict__ else (None, 0)
    inherited = {one.attribute: (number, *one.embedded) for one in declarations(embedded)} if embedded else {}
    return tuple(_declaration(field, inherited.get(field.name, ())) for field in info.fields)


@cache
def is_atomic(type_: type[Value]) -> bool:
    return bool(type_.__dict__.get("ATOMIC"))


@cache
def declarations_by_name(type_: type[Value]) -> Mapping[str, Declaration]:
    """The same by the names that JSON has."""
    return {declared.name: declared for declared in declarations(type_)}


def _declaration(field: inspect.Field, embedded: tuple[int, ...]) -> Declaration:
    extra: dict[str, Any] = {}
    if isinstance(field.type, inspect.Metadata):
        extra = field.type.extra or {}
    merge_key = extra.get("merge_key", "")
    keys = extra.get("list_keys", "") or merge_key
    return Declaration(
        attribute=field.name,
        name=field.encode_name,
        number=extra.get("pb", 0),
        embedded=embedded or extra.get("within", ()),
        encoding=extra.get("encoding", ""),
        shape=shape_of(field.type),
        default=_default(field),
        merge_key=merge_key,
        retain_keys=extra.get("retain_keys", False),
        list_keys=tuple(keys.split(",")) if keys else (),
        aside=field.encode_name.startswith(ASIDE),
        undocumented=extra.get("undocumented", False),
        known=extra.get("known"),
        as_list=_list_instead(field, extra["list_number"]) if extra.get("list_number") else None,
    )


def _list_instead(field: inspect.Field, number: int) -> Declaration:
    """The list of a union of an object and a list."""
    info = field.type.type if isinstance(field.type, inspect.Metadata) else field.type
    assert isinstance(info, inspect.UnionType)  # noqa: S101  # for the type checker: who sets a list_number has one
    shape = next(shape_of(one) for one in info.types if isinstance(one, inspect.VarTupleType))
    return Declaration(attribute=field.name, name=field.encode_name, number=number, shape=shape)


def _default(field: inspect.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else None


def shape_of(info: inspect.Type) -> Shape:
    """The shape of any type that a declaration may name."""
    if isinstance(info, inspect.Metadata):
        return shape_of(info.type)
    if isinstance(info, inspect.UnionType):
        return _union(info)
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        return _contained("list", shape_of(info.item_type))
    if isinstance(info, inspect.DictType):
        return _contained("map", shape_of(info.value_type))
    return _scalar(info)


def _union(info: inspect.UnionType) -> Shape:
    others = [one for one in info.types if not isinstance(one, inspect.NoneType)]
    objects = [one for one in others if isinstance(one, inspect.StructType)]
    if len(others) > 1 and objects:
        return Shape(element=objects[0].cls, optional=True)  # `Declaration.as_list` tells of the other
    if lists := [one for one in others if isinstance(one, inspect.VarTupleType) and len(others) > 1]:
        listed = shape_of(lists[0])
        return Shape(container="list", element=listed.element, bits=listed.bits, or_object=True)
    if len(others) > 1:
        return Shape(element=object, optional=info.includes_none)
    one = shape_of(others[0])
    return Shape(container=one.container, element=one.element, bits=one.bits, optional=True)


def _contained(container: Container, element: Shape) -> Shape:
    if container == "map" and element.container == "list" and element.element is str:
        return Shape(container="map", element=object)  # of lists of strings: the encoding "strings" reads them
    if element.container:
        raise TypeError("a list or map of lists or maps cannot be declared")
    return Shape(container=container, element=element.element, bits=element.bits)


def _scalar(info: inspect.Type) -> Shape:
    match info:
        case inspect.StructType(cls=cls):
            return Shape(element=cls)
        case inspect.BoolType():
            return Shape(element=bool)
        case inspect.StrType():
            return Shape(element=str)
        case inspect.IntType(le=upper):
            return Shape(element=int, bits=32 if upper == _INT32_MAX else 64)
        case inspect.AnyType() | inspect.RawType():
            return Shape(element=object, optional=True)
        case _:
            raise TypeError(f"no field can be declared as {info!r}")


# What repeats is kept once --------------------------------------------------------------------------------------------

# Each decoded document has a copy of its own of every text in it: names, types, words of an enumeration. Who keeps
# thousands of documents lets `shared_texts` replace these by the copies that others have, and lets equal values that
# are derived from many of them be one (`Alike`). A text lives as long as somebody has it (`sys.intern`).

ValueT = TypeVar("ValueT", bound=Value)
AnyT = TypeVar("AnyT")

#: Fields that no two documents have in common, or whose parts are shared already.
UNIQUE = frozenset({"uid", "resource_version", "managed_fields"})
#: For all: values never change.
EMPTY: dict[str, Any] = {}


class Alike(dict[Hashable, AnyT]):
    """The first value that came under each key. A full one starts over: common values are soon shared again."""

    def __init__(self, most: int = 4096) -> None:
        super().__init__()
        self._most = most

    def first(self, key: Hashable, value: AnyT) -> AnyT:
        if len(self) >= self._most:
            self.clear()
        return self.setdefault(key, value)


def shared_texts(value: ValueT) -> ValueT:
    """The value itself; it was decoded just now, and nobody else has it yet."""
    for name in _fields(type(value)):
        part = getattr(value, name)
        share = _SHARES.get(type(part))
        if share is not None:
            force_setattr(value, name, share(part))
        elif isinstance(part, Value):
            shared_texts(part)
    return value


@cache
def _fields(type_: type[Value]) -> tuple[str, ...]:
    return tuple(name for name in type_.__struct_fields__ if name not in UNIQUE)


def _tuple(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    if parts and isinstance(parts[0], Value):
        for part in parts:
            shared_texts(part)
        return parts
    return tuple(map(_part, parts))


def _map(parts: dict[str, Any]) -> dict[str, Any]:
    for key, part in parts.items():
        parts[key] = _part(part)
    return parts or EMPTY


def _part(part: Any) -> Any:
    share = _SHARES.get(type(part))
    if share is not None:
        return share(part)
    return shared_texts(part) if isinstance(part, Value) else part


_SHARES: dict[type, Callable[[Any], Any]] = {str: intern, tuple: _tuple, dict: _map}


# Random names and UIDs ------------------------------------------------------------------------------------------------


class KernelRandom(SystemRandom):
    """`SystemRandom` that fetches numbers in advance. Threads may share one, processes may not."""

    #: Bits of each number fetched, and how many numbers are fetched at a time.
    BITS, STOCK = 128, 256

    def __init__(self, fetch: Callable[[int], bytes] = os.urandom) -> None:
        super().__init__()
        self._fetch = fetch
        self._stock: list[int] = []

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)

    def getrandbits(self, k: int, /) -> int:
        if not 0 <= k <= self.BITS:
            return super().getrandbits(k)
        try:
            number = self._stock.pop()
        except IndexError:
            size = self.BITS // 8
            fetched = self._fetch(size * self.STOCK)
            number, *others = (int.from_bytes(fetched[at : at + size]) for at in range(0, len(fetched), size))
            self._stock += others
        return number >> (self.BITS - k)


RANDOM = PerProcess(KernelRandom)

#: The bits of a UUID that are random in version 4, and the others.
_RANDOM_BITS = UUID("ffffffff-ffff-0fff-3fff-ffffffffffff").int
_VERSION_4 = UUID("00000000-0000-4000-8000-000000000000").int


def new_uid() -> str:
    """A random UUID (RFC 9562, version 4)."""
    text = f"{RANDOM.value.getrandbits(KernelRandom.BITS) & _RANDOM_BITS | _VERSION_4:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
