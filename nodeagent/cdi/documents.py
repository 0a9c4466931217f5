"""Reads CDI files: JSON or YAML, as strictly as the specification's own library, and no more.

The library reads YAML with Go's types in mind (sigs.k8s.io/yaml): null is a field that was left out, a number or a
truth value where a text is wanted is that text, and numbers to the base of sixty are none: a device called 0 or 1:0
needs no quotes.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
import yaml

from nodeagent.cdi.rules import validate_spec
from nodeagent.cdi.spec import Spec

#: What a directory of CDI files is searched for.
SUFFIXES = (".json", ".yaml")

#: The fields of CDI that are no texts.
_NO_TEXTS: Final = {
    *("major", "minor", "fileMode", "uid", "gid", "timeout", "additionalGids"),
    *("enableMonitoring", "enableCMT", "enableMBM"),
}

#: How deep texts stand at most: the arguments of a hook of a device.
_DEEPEST: Final = 8

_TAG: Final = "tag:yaml.org,2002:"


def parse_spec(content: bytes, *, suffix: str) -> Spec:
    """The spec in a file of `suffix`. Raises: ValueError with everything that is wrong with it."""
    document = _as_go_reads(parse_document(content, suffix=suffix))
    if problems := validate_spec(document):
        raise ValueError("; ".join(problems))
    return msgspec.convert(document, Spec)


def parse_document(content: bytes, *, suffix: str) -> Any:
    """The document alone, rules unchecked. Raises: ValueError where it is none, or names a key of an object twice."""
    try:
        if suffix == ".json":
            return json.loads(content, object_pairs_hook=_object)
        return yaml.load(content, _StrictLoader)  # noqa: S506 - a SafeLoader that refuses more
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"is not {suffix[1:].upper()}: {error}") from error


def _as_go_reads(value: Any, field: str = "", depth: int = 0) -> Any:
    """The same without nulls, and with texts where `field` is one."""
    if depth > _DEEPEST:
        return value  # no CDI
    if isinstance(value, dict):
        return {name: _as_go_reads(part, name, depth + 1) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_as_go_reads(part, field, depth + 1) for part in value]
    if field in _NO_TEXTS or not isinstance(value, int | float):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value).removesuffix(".0")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} is there twice")
    return found


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key is there once, with the numbers and texts that Go's has."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != f"{_TAG}merge"]
        if twice := [key for index, key in enumerate(keys) if key in keys[:index]]:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        of_sixty = tag in (f"{_TAG}int", f"{_TAG}float") and ":" in value
        return f"{_TAG}str" if of_sixty or tag in (f"{_TAG}timestamp", f"{_TAG}value") else tag


_StrictLoader.add_implicit_resolver(f"{_TAG}int", re.compile(r"[-+]?0o[0-7_]+$"), list("-+0"))
