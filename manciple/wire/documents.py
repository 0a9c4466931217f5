"""Bodies of requests as builtins: JSON and YAML, with the limits that keep a hostile one harmless.

An object that names a key twice comes out as a `RepeatedKeys`, which the typed reading reports with its path; the last
one counts, as in Go. What is no document at all is a BadRequest, whatever the parser thinks of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

from manciple.wire.errors import BadRequest, TooLarge, UnsupportedMediaType
from manciple.wire.limits import check_time

#: How deep objects and lists may nest.
MAX_DEPTH: Final = 64
#: How many values a document may hold; in YAML, once its aliases are written out. As many as a body may have bytes
#: would take a hundred times its size as objects, and minutes to judge.
MAX_VALUES: Final = 200_000

#: Bytes that a YAML body may have: reading it takes ten times the time of JSON, which kubectl sends.
MAX_YAML: Final = 512 * 1024

JSON_MEDIA: Final = frozenset({"application/json"})
YAML_MEDIA: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


#: From here on a number of 64 bits has no exact whole value of its own.
_WHOLE: Final = 2**63


def as_go_number(raw: float) -> float | None:
    """A number of which no type is known, as Go reads it: whole where it is and 64 bits hold it, a float otherwise.

    None for one that is none of 64 bits at all, such as 1e400.
    """
    try:
        if not math.isfinite(raw):
            return None
        return int(raw) if -_WHOLE <= raw < _WHOLE and raw == int(raw) else float(raw)
    except OverflowError:
        return None


class RepeatedKeys(dict[str, Any]):
    """An object in which `repeated` keys stood more than once."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Any]], repeated: tuple[str, ...]) -> None:
        super().__init__(pairs)
        self.repeated = repeated


def media_type(content_type: str) -> str:
    """`application/json` of "application/json; charset=utf-8"; JSON where a client names nothing."""
    return content_type.partition(";")[0].strip().lower() or "application/json"


def parse(body: bytes, *, media: str) -> Any:
    """The document of a JSON or YAML body.

    Raises: UnsupportedMediaType for another media type, BadRequest for a body that is no document or goes too deep,
    TooLarge for YAML of more than `MAX_YAML` bytes.
    """
    if media in JSON_MEDIA:
        document = _parse_json(body)
    elif media in YAML_MEDIA:
        document = _parse_large_yaml(body) if len(body) > MAX_YAML else _parse_yaml(body)
    else:
        accepted = ", ".join(sorted(JSON_MEDIA | YAML_MEDIA | {"application/vnd.kubernetes.protobuf"}))
        raise UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        )
    check_size(document)
    return document


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    repeated = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]  # add() is None
    return RepeatedKeys(pairs, tuple(dict.fromkeys(repeated)))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


#: Objects of a JSON document between two looks at the time.
_OBJECTS_PER_LOOK: Final = 256


def _parse_json(body: bytes) -> Any:
    objects = 0

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal objects
        if not objects % _OBJECTS_PER_LOOK:
            check_time()
        objects += 1
        return _pairs(pairs)

    try:
        text = body.decode()
        document = json.loads(text, object_pairs_hook=object_of, parse_constant=_no_constant)
        if _SURROGATE.search(body):
            json.dumps(document, ensure_ascii=False).encode()  # half a pair is no character, and cannot be written
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {_reason(error)}") from error
    return document


def _reason(error: Exception) -> str:
    return "the document nests too deep" if isinstance(error, RecursionError) else str(error)


#: From here on Go writes whole numbers with an exponent.
_WRITTEN_OUT = 1e21
#: The tags of plain values that Kubernetes reads otherwise than YAML 1.1 has them.
_OURS = ("timestamp", "int", "float")


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: no timestamps, no base-60 numbers, an exponent needs no dot, keys are text."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in _OURS]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object_of(self, node: yaml.MappingNode) -> dict[str, Any]:
        """A mapping whose keys are text, as JSON has them."""
        self.flatten_mapping(node)
        check_time()
        return _pairs([(_key(self.construct_object(key, deep=True)), self._member(value)) for key, value in node.value])

    def _member(self, node: yaml.Node) -> Any:
        check_time()
        return self.construct_object(node, deep=True)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(0b[01]+|0o?[0-7]+|0|[1-9][0-9]*|0x[0-9a-fA-F]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+.0123456789"),
)


def _construct_int(_loader: _Loader, node: yaml.ScalarNode) -> int:
    text = node.value.replace("0o", "0")
    octal = re.fullmatch(r"([-+]?)0([0-7]+)", text)
    return int(octal[1] + octal[2], 8) if octal else int(text, 0)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float | int:
    return as_go_writes(loader.construct_yaml_float(node))


def as_go_writes(value: float) -> float | int:
    """Whole numbers are written without a fraction in JSON, as Go writes them, and so fit fields for integers."""
    return int(value) if value.is_integer() and abs(value) < _WRITTEN_OUT else value


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_object_of)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


def _key(key: Hashable) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float) or key is None:
        return json.dumps(key)
    raise ValueError("a key must be a scalar")


def _parse_large_yaml(body: bytes) -> Any:
    """JSON is YAML, and server-side apply calls what it sends YAML always. Raises: TooLarge for what is no JSON."""
    try:
        return _parse_json(body)
    except BadRequest as error:
        told = f"Request entity too large: limit of YAML is {MAX_YAML} bytes; send a larger document as JSON"
        raise TooLarge(told) from error


def _parse_yaml(body: bytes) -> Any:
    try:
        text = body.decode()
        _check_events(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_nodes(node)
            document = loader.construct_document(node)
        finally:
            loader.dispose()
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError, OverflowError, RecursionError, yaml.YAMLError) as error:
        raise BadRequest(f"error converting YAML to JSON: yaml: {_reason(error)}") from error
    return document


def _check_events(text: str) -> None:
    """Looks at the size and the depth before anything is composed: the C composer recurses without a limit.

    Raises: ValueError.
    """
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        check_time()
        if depth > MAX_DEPTH:
            raise ValueError("the document nests too deep")
        if count > MAX_VALUES:
            raise ValueError("the document is too large")


def _check_nodes(root: yaml.Node) -> None:
    """Counts the nodes with every alias written out, and finds an alias inside what it stands for.

    Raises: ValueError for too many, or for a node that contains itself.
    """
    counts: dict[int, int] = {}
    open_nodes: set[int] = set()

    def count(node: yaml.Node) -> int:
        identity = id(node)
        if identity in counts:
            return counts[identity]
        if identity in open_nodes:
            raise ValueError("an anchor's value contains itself")
        open_nodes.add(identity)
        total = 1 + sum(count(child) for child in _children(node))
        if total > MAX_VALUES:
            raise ValueError("document contains excessive aliasing")
        open_nodes.discard(identity)
        counts[identity] = total
        return total

    count(root)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def check_size(document: Any) -> None:
    """Raises: BadRequest for a document that goes too deep, or holds too many values."""
    level, values = [document] if isinstance(document, dict | list) else [], 1
    for _ in range(MAX_DEPTH + 1):
        values += sum(map(len, level))
        if values > MAX_VALUES:
            raise BadRequest(f"the document holds more than {MAX_VALUES} values")
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise BadRequest(f"the document nests deeper than {MAX_DEPTH} levels")
