"""Google's protobuf runtime with message types made from our declarations, as a second opinion on the wire format."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

from manciple.wire.base import Declaration, Value, declarations

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "second.opinion"
_WRAPPERS: dict[str, dict[str, tuple[int, int]]] = {
    "quantity": {"string": (1, _Field.TYPE_STRING)},
    "time": {"seconds": (1, _Field.TYPE_INT64), "nanos": (2, _Field.TYPE_INT32)},
    "microTime": {"seconds": (1, _Field.TYPE_INT64), "nanos": (2, _Field.TYPE_INT32)},
    "intOrString": {
        "type": (1, _Field.TYPE_INT64),
        "intVal": (2, _Field.TYPE_INT32),
        "strVal": (3, _Field.TYPE_STRING),
    },
    "raw": {"raw": (1, _Field.TYPE_BYTES)},
    "fieldsV1": {"Raw": (1, _Field.TYPE_BYTES)},
    "strings": {"items": (1, _Field.TYPE_STRING)},
}
#: Those of them whose one field is repeated.
_REPEATED = frozenset({"strings"})


def message_class(type_: type[Value], *, packed: bool = False) -> Any:
    """Google's message class for a type; `packed` lists put all their numbers into one field."""
    file = descriptor_pb2.FileDescriptorProto(name="opinion.proto", package=_PACKAGE, syntax="proto2")
    for name, parts in _WRAPPERS.items():
        wrapper = file.message_type.add(name=name)
        for part, (number, kind) in parts.items():
            label = _Field.LABEL_REPEATED if name in _REPEATED else _Field.LABEL_OPTIONAL
            wrapper.field.add(name=part, number=number, type=kind, label=label)
    _add(file, type_, packed=packed)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{_name(type_)}"))


def unknown_fields(message: Any) -> list[str]:
    """The names of the messages in which Google's runtime met fields that it does not know."""
    found = [message.DESCRIPTOR.name] if len(UnknownFieldSet(message)) else []
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        if field.message_type.GetOptions().map_entry:
            children = [one for one in value.values() if hasattr(one, "ListFields")]
        else:
            children = list(value) if field.is_repeated else [value]
        found += [name for child in children for name in unknown_fields(child)]
    return found


def _name(type_: type[Value]) -> str:
    return f"{type_.__module__}.{type_.__name__}".replace(".", "_")


def _add(file: descriptor_pb2.FileDescriptorProto, type_: type[Value], *, packed: bool) -> None:
    if any(message.name == _name(type_) for message in file.message_type):
        return
    message = file.message_type.add(name=_name(type_))
    for declared in declarations(type_):
        if declared.number:
            owner, prefix = message, _name(type_)
            for number in declared.embedded:
                owner, prefix = _embedded(owner, number, prefix=prefix), f"{prefix}.Embedded"
            _add_field(owner, declared, prefix=prefix, packed=packed)
        if issubclass(declared.shape.element, Value):
            _add(file, declared.shape.element, packed=packed)


def _embedded(message: descriptor_pb2.DescriptorProto, number: int, *, prefix: str) -> descriptor_pb2.DescriptorProto:
    if not message.nested_type or message.nested_type[-1].name != "Embedded":
        message.nested_type.add(name="Embedded")
        field = message.field.add(name="embedded", number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_MESSAGE)
        field.type_name = f".{_PACKAGE}.{prefix}.Embedded"
    return next(nested for nested in message.nested_type if nested.name == "Embedded")


def _add_field(owner: descriptor_pb2.DescriptorProto, declared: Declaration, *, prefix: str, packed: bool) -> None:
    if declared.shape.container == "map":
        entry = owner.nested_type.add(name=f"{declared.name[0].upper()}{declared.name[1:]}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        _typed(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), declared)
        field = owner.field.add(name=declared.name, number=declared.number, label=_Field.LABEL_REPEATED)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{prefix}.{entry.name}"
        return
    repeated = declared.shape.container == "list"
    label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    field = owner.field.add(name=declared.name, number=declared.number, label=label)
    _typed(field, declared)
    if packed and repeated and declared.shape.element in (int, bool):
        field.options.packed = True


def _typed(field: Any, declared: Declaration) -> None:
    element = declared.shape.element
    if issubclass(element, Value):
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{_name(element)}"
    elif declared.encoding in _WRAPPERS:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{declared.encoding}"
    elif element is int:
        field.type = _Field.TYPE_INT32 if declared.shape.bits == 32 else _Field.TYPE_INT64
    else:
        field.type = {bool: _Field.TYPE_BOOL, str: _Field.TYPE_STRING}[element]
