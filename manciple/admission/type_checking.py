"""Whether a policy's expressions fit the kinds that it matches: a field that a kind does not have is told, not refused.

When a policy is written nothing is known of `object` but that it is a document. Here every expression is checked again
for each kind that the policy's rules name, with that kind's own type; what does not fit becomes a warning in
`status.typeChecking`, with the kind. Rules with a `*` name no kind, and neither do subresources. PURE.
Source: apiserver/pkg/admission/plugin/policy/validating/typechecking.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from manciple.admission.environment import OBJECT, OLD_OBJECT, PARAMS
from manciple.admission.expressions import ANYTHING, Composition
from manciple.admission.kinds.policies import ExpressionWarning, ParamKind, TypeChecking, ValidatingAdmissionPolicy
from manciple.cel.errors import CompileError
from manciple.cel.functions import Environment
from manciple.cel.types import BOOL, BYTES, DYN, INT, STRING, CelType, TypeKind, list_of, map_of
from manciple.wire import schema
from manciple.wire.base import Declaration, Value, declarations
from manciple.wire.registry import Registry, Served
from manciple.wire.validation import Path

#: Kinds that are looked at for one policy.
MOST_KINDS = 10
_PREFIX = "compilation failed: "

# What is checked ------------------------------------------------------------------------------------------------------


def check_policy(policy: ValidatingAdmissionPolicy, registry: Registry) -> TypeChecking:
    """The warnings of all its validations, in their order."""
    kinds = matched_kinds(policy, registry)
    compositions = [(_named(served), _composition(policy, served, registry)) for served in kinds]
    found: list[ExpressionWarning] = []
    for path, expression, authorizer in _expressions(policy):
        problems = [
            f"{name}: {problem}"
            for name, composition in compositions
            if (problem := _problem(composition, expression, authorizer=authorizer))
        ]
        if problems:
            found.append(ExpressionWarning(field_ref=str(path), warning="\n".join(problems)))
    return TypeChecking(expression_warnings=tuple(found))


def _expressions(policy: ValidatingAdmissionPolicy) -> Iterator[tuple[Path, str, bool]]:
    """(where it stands, the expression, whether it may ask the authorizer)."""
    validations = Path("spec").child("validations")
    for position, one in enumerate(policy.spec.validations):
        yield validations.at(position).child("expression"), one.expression.strip(), True
        if one.message_expression.strip():
            yield validations.at(position).child("messageExpression"), one.message_expression.strip(), False


def _problem(composition: Composition, expression: str, *, authorizer: bool) -> str:
    try:
        composition.compile(expression, ANYTHING, authorizer=authorizer)
    except CompileError as error:
        return error.message.removeprefix(_PREFIX)
    return ""


def matched_kinds(policy: ValidatingAdmissionPolicy, registry: Registry) -> list[Served]:
    """Those that its rules name, by group, version and kind."""
    constraints = policy.spec.match_constraints
    found = {
        (group, version, served.kind.kind): served
        for rule in (constraints.resource_rules if constraints else ())
        for group in _plain(rule.api_groups)
        for version in _plain(rule.api_versions)
        for plural in _plain(rule.resources)
        if (served := registry.served(group, version, plural)) is not None
    }
    return [found[key] for key in sorted(found)][:MOST_KINDS]


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    """Nothing where one stands for all."""
    given = tuple(names)
    return () if "*" in given else tuple(name for name in given if "/" not in name)


def _named(served: Served) -> str:
    return f"{served.kind.group}/{served.version}, Kind={served.kind.kind}"


# With which types -----------------------------------------------------------------------------------------------------


def _composition(policy: ValidatingAdmissionPolicy, served: Served, registry: Registry) -> Composition:
    spec = policy.spec
    structs: dict[str, Mapping[str, CelType]] = {}
    of_object = DYN if served.kind.is_open else _struct(served.shape, structs)
    of_params = _params_type(spec.param_kind, registry, structs)

    def typed(environment: Environment) -> Environment:
        idents = {**environment.idents, OBJECT: of_object, OLD_OBJECT: of_object}
        if spec.param_kind is not None:
            idents[PARAMS] = of_params
        return replace(environment, idents=idents, structs={**environment.structs, **structs})

    variables = [(one.name, one.expression) for one in spec.variables]
    return Composition(variables, params=spec.param_kind is not None, composed=bool(variables), typed=typed)


def _params_type(wanted: ParamKind | None, registry: Registry, structs: dict[str, Mapping[str, CelType]]) -> CelType:
    found = registry.find_kind(wanted.api_version, wanted.kind) if wanted else None
    return DYN if found is None or found.is_open else _struct(found.type, structs)


def _struct(type_: type[Value], structs: dict[str, Mapping[str, CelType]]) -> CelType:
    """The type as expressions know it; it and all that it refers to are added to `structs`."""
    name = schema_name(type_)
    if name not in structs:
        structs[name] = {}  # named before it is filled: types may refer to each other
        structs[name] = {
            declared.name: _field(declared, structs) for declared in declarations(type_) if not declared.aside
        }
    return CelType(TypeKind.STRUCT, name)


def _field(declared: Declaration, structs: dict[str, Mapping[str, CelType]]) -> CelType:
    element = _element(declared, structs)
    return {"map": map_of(STRING, element), "list": list_of(element)}.get(declared.shape.container, element)


def _element(declared: Declaration, structs: dict[str, Mapping[str, CelType]]) -> CelType:
    """Texts with a meaning (quantities, times) stay open: whoever reads them says what they take them for."""
    element = declared.shape.element
    if issubclass(element, Value):
        return _struct(element, structs)
    if declared.encoding:
        return {"bytes": BYTES, "strings": list_of(STRING), "name": STRING}.get(declared.encoding, DYN)
    return {bool: BOOL, int: INT, str: STRING}.get(element, DYN)


@cache
def schema_name(type_: type[Value]) -> str:
    """Its name in OpenAPI; of what is not there, its own."""
    try:
        return schema.schema_name(type_)
    except AttributeError:
        return type_.__name__
