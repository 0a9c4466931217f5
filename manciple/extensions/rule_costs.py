"""What the rules of a schema cost by their estimate, and what is wrong with them beyond their form. PURE.

Source: apiextensions-apiserver/pkg/apis/apiextensions/validation/cel_validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from manciple.extensions.expressions import BadRule, compile_rule
from manciple.extensions.schema_types import REQUEST_BYTES, Declared, declare
from manciple.extensions.structure import Schema, SchemaNode, node_of
from manciple.wire.errors import FieldError, forbidden, invalid
from manciple.wire.limits import check_time
from manciple.wire.validation import Path

#: What a rule may cost by its estimate, times how often it can be asked; and all of a definition's version.
RULE_LIMIT, SCHEMA_LIMIT = 10_000_000, 100_000_000
RULES = "x-kubernetes-validations"
Errors = Iterator[FieldError]


@dataclass(slots=True)
class RuleCosts:
    """The rules of one schema, compiled, and their estimated costs."""

    path: Path
    total: int = 0
    spent: list[tuple[int, Path]] = field(default_factory=list)

    def of(self, schema: Schema) -> list[FieldError]:
        found = list(self._below(node_of(schema), self.path, 1, root=True, uncorrelated=None))
        if self.total > SCHEMA_LIMIT:
            why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            most = sorted((one for one in self.spent if one[0] >= SCHEMA_LIMIT // 100), key=lambda one: -one[0])
            found += [forbidden(path, why) for _, path in most[:4]]
            whole = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
            found.append(forbidden(self.path, _too_expensive(whole, self.total, SCHEMA_LIMIT)))
        return found

    def _below(
        self, node: SchemaNode, path: Path, times: int | None, *, root: bool = False, uncorrelated: Path | None
    ) -> Errors:
        """times: how often the schema's values can stand in an object; None where nothing limits that."""
        of_items = uncorrelated or (None if node.list_type == "map" else path)
        if node.values is not None:
            most = _times(times, node.raw.get("maxProperties"))
            yield from self._below(node.values, path.child("additionalProperties"), most, uncorrelated=uncorrelated)
        for name, part in node.properties.items():
            where = path.child(f"properties[{name}]")
            yield from self._below(part, where, times, root=part.embedded, uncorrelated=uncorrelated)
        if node.items is not None:
            most = _times(times, node.raw.get("maxItems"))
            yield from self._below(
                node.items, path.child("items"), most, root=node.items.embedded, uncorrelated=of_items
            )
        if node.rules:
            declared = declare(node, root=root)
            if declared is None:
                why = "internal error: failed to construct type information for x-kubernetes-validations rules"
                yield FieldError(type="InternalError", field=path.child(RULES), detail=why)
                return
            for at, rule in enumerate(node.rules):
                yield from self._of_rule(rule, declared, path.child(RULES).at(at), times, uncorrelated)

    def _of_rule(
        self, schema: Schema, declared: Declared, path: Path, times: int | None, uncorrelated: Path | None
    ) -> Errors:
        check_time()
        try:
            rule = compile_rule(declared, schema)
        except BadRule as error:
            yield invalid(path.child(error.member), dict(schema), error.detail)
            return
        often = times if times is not None else REQUEST_BYTES // (declared.least + 1)
        yield from self._counted(rule.cost * often, "estimated rule cost", path.child("rule"))
        if rule.message is not None:
            yield from self._counted(
                rule.message_cost, "estimated messageExpression cost", path.child("messageExpression")
            )
        if rule.uses_old and uncorrelated is not None:
            why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
            yield invalid(path.child("rule"), schema["rule"], why)
        elif not rule.uses_old and "optionalOldSelf" in schema:
            why = "may not be set if oldSelf is not used in rule"
            yield invalid(path.child("optionalOldSelf"), schema["optionalOldSelf"], why)

    def _counted(self, cost: int, name: str, path: Path) -> Errors:
        self.total += cost
        self.spent.append((cost, path))
        if cost > RULE_LIMIT:
            yield forbidden(path, _too_expensive(name, cost, RULE_LIMIT))


def _times(times: int | None, most: int | None) -> int | None:
    return None if times is None or most is None else times * most


def _too_expensive(name: str, cost: int, limit: int) -> str:
    excess = cost / limit
    factor = "more than 100x" if excess > 100 else f"{excess:.6f}x" if excess < 1.5 else f"{excess:.1f}x"  # noqa: PLR2004
    advice = "adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared"
    return f"{name} exceeds budget by factor of {factor} (try simplifying the rule, or {advice})"
