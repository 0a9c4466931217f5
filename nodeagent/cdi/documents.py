"""Reads CDI files: JSON or YAML, as strictly as the specification's own library."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import yaml

from nodeagent.cdi.rules import validate_spec
from nodeagent.cdi.spec import Spec

#: What a directory of CDI files is searched for.
SUFFIXES = (".json", ".yaml")


def parse_spec(content: bytes, *, suffix: str) -> Spec:
    """The spec in a file of `suffix`. Raises: ValueError with everything that is wrong with it."""
    document = parse_document(content, suffix=suffix)
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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} is there twice")
    return found


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key is there once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := [key for index, key in enumerate(keys) if key in keys[:index]]:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)
