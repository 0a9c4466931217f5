"""An OpenAPI v2 document as gnostic's protobuf, which kubectl up to 1.28 (and any `kind: List` file) needs.

Only the messages that our document uses are written; field numbers are those of gnostic's openapiv2/OpenAPIv2.proto.
Maps become repeated (name, value) messages; vendor extensions carry their value as YAML text, of which JSON is a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from manciple.wire.wireformat import delimited_field, varint_field

Document = Mapping[str, Any]
Encode = Callable[[Any], bytes]

#: The messages of a parameter that stands in no body, by where it stands.
_PARAMETER_PLACES = {"query": 3, "path": 4}
#: In query parameters `type` comes one later than in path parameters, after allow_empty_value.
_PARAMETER_TYPE = {"query": 6, "path": 5}


def encode(document: Document) -> bytes:
    """openapi.v2.Document."""
    return b"".join(
        (
            _text(1, document["swagger"]),
            delimited_field(2, _texts_of(document["info"], {"title": 1, "version": 2})),
            delimited_field(8, _named(2, document["paths"], _path_item)),
            delimited_field(9, _named(1, document["definitions"], _schema)),
        )
    )


def _path_item(item: Document) -> bytes:
    numbers = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
    operations = (delimited_field(numbers[verb], _operation(item[verb])) for verb in numbers if verb in item)
    return b"".join((*operations, _messages(9, item.get("parameters", ()), _parameter)))


def _operation(operation: Document) -> bytes:
    return b"".join(
        (
            _texts(1, operation.get("tags", ())),
            _texts_of(operation, {"description": 3, "operationId": 5}),
            _texts(6, operation.get("produces", ())),
            _texts(7, operation.get("consumes", ())),
            _messages(8, operation.get("parameters", ()), _parameter),
            delimited_field(9, _named(1, operation["responses"], _response)),
            _extensions(13, operation),
        )
    )


def _parameter(parameter: Document) -> bytes:
    """ParametersItem{parameter: Parameter{body_parameter | non_body_parameter}}."""
    place = parameter["in"]
    if place == "body":
        body = (
            _texts_of(parameter, {"description": 1, "name": 2, "in": 3})
            + _truth(4, parameter.get("required"))
            + delimited_field(5, _schema(parameter["schema"]))
        )
        return delimited_field(1, delimited_field(1, body))
    described = _truth(1, parameter.get("required")) + _texts_of(parameter, {"in": 2, "description": 3, "name": 4})
    typed = _text(_PARAMETER_TYPE[place], parameter["type"])
    return delimited_field(1, delimited_field(2, delimited_field(_PARAMETER_PLACES[place], described + typed)))


def _response(response: Document) -> bytes:
    """ResponseValue{response: Response{description, schema: SchemaItem{schema}}}."""
    schema = response.get("schema")
    shown = delimited_field(2, delimited_field(1, _schema(schema))) if schema is not None else b""
    return delimited_field(1, _text(1, response["description"]) + shown)


def _schema(schema: Document) -> bytes:
    parts = [_texts_of(schema, {"$ref": 1, "format": 2, "title": 3, "description": 4})]
    if "default" in schema:
        parts.append(delimited_field(5, _any(schema["default"])))
    parts.append(_texts(19, schema.get("required", ())))
    parts.append(_messages(20, schema.get("enum", ()), _any))
    if "additionalProperties" in schema:
        parts.append(delimited_field(21, _additional(schema["additionalProperties"])))
    if "type" in schema:
        parts.append(delimited_field(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(delimited_field(23, delimited_field(1, _schema(schema["items"]))))
    parts.append(_messages(24, schema.get("allOf", ()), _schema))
    if "properties" in schema:
        parts.append(delimited_field(25, _named(1, schema["properties"], _schema)))
    parts.append(_extensions(31, schema))
    return b"".join(parts)


def _additional(value: Any) -> bytes:
    if isinstance(value, bool):
        return varint_field(2, int(value))
    return delimited_field(1, _schema(value))


def _any(value: Any) -> bytes:
    """Any{yaml}."""
    return _text(2, orjson.dumps(value).decode() + "\n")


def _extensions(number: int, holder: Document) -> bytes:
    return _named(number, {key: value for key, value in holder.items() if key.startswith("x-")}, _any)


def _named(number: int, values: Mapping[str, Any], encode_value: Encode) -> bytes:
    """A map: repeated messages of name (1) and value (2)."""
    return b"".join(
        delimited_field(number, _text(1, name) + delimited_field(2, encode_value(value)))
        for name, value in values.items()
    )


def _messages(number: int, values: Iterable[Any], encode_value: Encode) -> bytes:
    return b"".join(delimited_field(number, encode_value(value)) for value in values)


def _text(number: int, text: str) -> bytes:
    return delimited_field(number, text.encode()) if text else b""


def _texts(number: int, texts: Iterable[str]) -> bytes:
    return b"".join(delimited_field(number, text.encode()) for text in texts)


def _texts_of(holder: Document, numbers: Mapping[str, int]) -> bytes:
    return b"".join(_text(number, holder.get(name, "")) for name, number in numbers.items())


def _truth(number: int, value: Any) -> bytes:
    return varint_field(number, 1) if value else b""
