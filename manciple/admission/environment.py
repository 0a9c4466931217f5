"""What an expression of a policy or a webhook's match condition may name. PURE.

    object, oldObject     any document; null where there is none
    request               the AdmissionRequest: who does what, under which name
    namespaceObject       the namespace, without owners and managed fields; null for what has none
    params                the parameter object, where the policy has a paramKind
    authorizer            asks whether somebody may do something; authorizer.requestResource: this very thing
    variables             what the policy's own expressions gave, by name

Expressions of mutating policies also make `Object{}` with the types of its fields, `JSONPatch{}`, and
`jsonpatch.escapeKey(text)`.

Source: apiserver/pkg/admission/plugin/cel/compile.go (BuildRequestType, BuildNamespaceType).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from manciple.admission import authorizers
from manciple.cel.functions import Environment, base_functions, declared, type_names
from manciple.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, CelType, TypeKind, list_of, map_of, type_of_type

OBJECT, OLD_OBJECT, PARAMS, REQUEST, NAMESPACE = "object", "oldObject", "params", "request", "namespaceObject"
AUTHORIZER, REQUEST_RESOURCE, VARIABLES = "authorizer", "authorizer.requestResource", "variables"

#: everything that an evaluation may be asked for
NAMES = frozenset((OBJECT, OLD_OBJECT, PARAMS, REQUEST, NAMESPACE, AUTHORIZER, REQUEST_RESOURCE, VARIABLES))

_TEXTS = list_of(STRING)


def _struct(name: str) -> CelType:
    return CelType(TypeKind.STRUCT, f"kubernetes.{name}")


REQUEST_TYPE, NAMESPACE_TYPE, VARIABLES_TYPE = _struct("AdmissionRequest"), _struct("Namespace"), _struct("variables")
_GVK, _GVR = _struct("GroupVersionKind"), _struct("GroupVersionResource")

STRUCTS: Mapping[str, Mapping[str, CelType]] = {
    _GVK.name: dict.fromkeys(("group", "version", "kind"), STRING),
    _GVR.name: dict.fromkeys(("group", "version", "resource"), STRING),
    _struct("UserInfo").name: {
        "username": STRING,
        "uid": STRING,
        "groups": _TEXTS,
        "extra": map_of(STRING, _TEXTS),
    },
    REQUEST_TYPE.name: {
        "kind": _GVK,
        "resource": _GVR,
        "subResource": STRING,
        "requestKind": _GVK,
        "requestResource": _GVR,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _struct("UserInfo"),
        "dryRun": BOOL,
        "options": DYN,
    },
    _struct("NamespaceSpec").name: {"finalizers": _TEXTS},
    _struct("NamespaceCondition").name: {
        "status": STRING,
        "type": STRING,
        "lastTransitionTime": TIMESTAMP,
        "message": STRING,
        "reason": STRING,
    },
    _struct("NamespaceStatus").name: {"conditions": list_of(_struct("NamespaceCondition")), "phase": STRING},
    _struct("NamespaceMetadata").name: {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        **dict.fromkeys(("labels", "annotations"), map_of(STRING, STRING)),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), INT),
        "finalizers": _TEXTS,
    },
    NAMESPACE_TYPE.name: {
        "metadata": _struct("NamespaceMetadata"),
        "spec": _struct("NamespaceSpec"),
        "status": _struct("NamespaceStatus"),
    },
}


@cache
def environment_of(*, params: bool, authorizer: bool) -> Environment:
    """Whether the policy has parameters; whether the expression may ask the authorizer (messages may not)."""
    idents: dict[str, CelType] = {
        **type_names(),
        OBJECT: DYN,
        OLD_OBJECT: DYN,
        REQUEST: REQUEST_TYPE,
        NAMESPACE: NAMESPACE_TYPE,
    }
    if params:
        idents[PARAMS] = DYN
    if authorizer:
        idents |= {AUTHORIZER: authorizers.AUTHORIZER, REQUEST_RESOURCE: authorizers.RESOURCE_CHECK}
    return Environment(
        functions=base_functions(),
        idents=idents,
        structs=STRUCTS,
        implementations=authorizers.IMPLEMENTATIONS,
        costs=authorizers.COSTS,
    )


#: What mutating policies make.
OBJECT_TYPE, PATCH_TYPE = CelType(TypeKind.STRUCT, "Object"), CelType(TypeKind.STRUCT, "JSONPatch")
_PATCH_FIELDS: Mapping[str, CelType] = {**dict.fromkeys(("op", "path", "from"), STRING), "value": DYN}
_ESCAPE = "jsonpatch_escapekey"


def mutating(environment: Environment) -> Environment:
    """The environment with what expressions of mutating policies make."""
    return replace(
        environment,
        functions={**environment.functions, **declared(f"jsonpatch.escapeKey {_ESCAPE} (string) -> string")},
        idents={**environment.idents, PATCH_TYPE.name: type_of_type(PATCH_TYPE)},
        structs={**environment.structs, PATCH_TYPE.name: _PATCH_FIELDS},
        open_structs=OBJECT_TYPE.name,
        implementations={
            **environment.implementations,
            _ESCAPE: lambda text: text.replace("~", "~0").replace("/", "~1"),
        },
    )


def with_variables(environment: Environment, variables: Mapping[str, CelType]) -> Environment:
    """The environment with `variables`, each of its type."""
    return replace(
        environment,
        idents={**environment.idents, VARIABLES: VARIABLES_TYPE},
        structs={**environment.structs, VARIABLES_TYPE.name: variables},
    )


def variable_type(output: CelType) -> CelType:
    """The type that a variable has for other expressions (upstream: convertCelTypeToDeclType)."""
    if output.kind in (TypeKind.PRIMITIVE, TypeKind.NULL, TypeKind.TIME, TypeKind.ANY):
        return output
    if output.kind is TypeKind.LIST:
        return list_of(variable_type(output.params[0]))
    if output.kind is TypeKind.MAP:
        return map_of(*map(variable_type, output.params))
    return DYN
