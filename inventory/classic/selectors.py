"""Selectors of named resources in the CEL of Kubernetes 1.30: `attributes.quantity["memory"].isGreaterThan(...)`. PURE.

There is one map of attributes for each type of value.
Source: dynamic-resource-allocation/structured/namedresources/cel/compile.go of Kubernetes 1.30.
"""

from __future__ import annotations

from functools import cache

from manciple.cel.checker import check
from manciple.cel.errors import CompileError, compile_error
from manciple.cel.functions import Environment, base_functions, type_names
from manciple.cel.parser import parse
from manciple.cel.types import BOOL, INT, QUANTITY, SEMVER, STRING, list_of, map_of

_VALUES = {
    "quantity": QUANTITY,
    "bool": BOOL,
    "int": INT,
    "intslice": list_of(INT),
    "string": STRING,
    "stringslice": list_of(STRING),
    "version": SEMVER,
}


@cache
def _environment() -> Environment:
    maps = {f"attributes.{name}": map_of(STRING, type_) for name, type_ in _VALUES.items()}
    return Environment(functions=base_functions(), idents={**type_names(), **maps})


def problem_of(selector: str) -> str:
    """Why it is no selector; "" for one that is."""
    try:
        tree, problems = check(parse(selector), _environment())
        if problems:
            raise compile_error(selector, problems)
    except CompileError as error:
        return error.message
    except RecursionError:
        return "compilation failed: ERROR: <input>:1:1: expression recursion limit exceeded"
    return "" if tree.output_type == BOOL else "must evaluate to bool"
