"""A request of the API, read and checked: what its path means, its options, its body.

    /api/v1/namespaces/NS/pods/NAME/status          /apis/GROUP/VERSION/PLURAL/NAME
    /api/v1/watch/namespaces/NS/pods                the old spelling of ?watch=true

Used by the REST views and by the streams alike. A wrong option is 422 Invalid with its field as the cause, a number
that is none is 400. Sources: apiserver/pkg/endpoints/request/requestinfo.go; apimachinery/pkg/apis/meta/v1/types.go and
.../validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from msgspec import structs

from manciple.store.records import Propagation
from manciple.wire import codec, documents
from manciple.wire.base import ApiObject, Value
from manciple.wire.codec import Decoded, Strictness
from manciple.wire.errors import (
    BadRequest,
    FieldError,
    Invalid,
    UnsupportedMediaType,
    forbidden,
    invalid,
    not_supported,
    too_long,
)
from manciple.wire.identity import MANAGER_MAX
from manciple.wire.limits import short_text_cache
from manciple.wire.machinery import DeleteOptions
from manciple.wire.registry import Kind, Served, registry
from manciple.wire.selectors import FieldSelector, ParsedLabelSelector, parse_field_selector, parse_label_selector

# Paths ----------------------------------------------------------------------------------------------------------------


#: What stands behind a namespace's name and is no resource in that namespace.
NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_DEEPEST = len(("plural", "name", "subresource"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePath:
    """namespace "" means cluster-wide, name "" the collection, subresource "" the object itself."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    #: there is more behind the subresource: nothing is served so far down
    too_deep: bool = False

    @property
    def asked_version(self) -> str:
        """The version as the kind knows it (`Kind.served_versions`)."""
        found = registry.served(self.group, self.version, self.plural)
        return found.version if found else self.version

    def served(self) -> Served | None:
        """The kind served here; None where there is none, or its scope does not fit the path."""
        found = registry.served(self.group, self.version, self.plural)
        if found is None or self.too_deep:
            return None
        if found.kind.namespaced:
            return found if self.namespace or not self.name else None
        return None if self.namespace else found


@short_text_cache(16384)  # more than the Leases of all nodes
def parse_path(path: str) -> ResourcePath | None:
    """The resource that `path` names; None for any path that is not of that form (discovery, pages)."""
    segments = [segment for segment in path.split("/") if segment]
    match segments:
        case ["api", "v1", *rest]:
            return _resource("", "v1", rest)
        case ["apis", group, version, *rest]:
            return _resource(group, version, rest)
    return None


def _resource(group: str, version: str, rest: list[str]) -> ResourcePath | None:
    watch = rest[:1] == ["watch"]
    if watch:
        rest = rest[1:]
    namespace = ""
    match rest:
        case ["namespaces", in_namespace, first, *deeper] if first not in NAMESPACE_SUBRESOURCES:
            namespace, rest = in_namespace, [first, *deeper]
    if not rest:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return ResourcePath(
        group=group,
        version=version,
        plural=plural,
        namespace=namespace,
        name=name,
        subresource=subresource,
        watch=watch,
        too_deep=len(rest) > _DEEPEST,
    )


# Options --------------------------------------------------------------------------------------------------------------


#: What Go's strconv reads, up to so many digits that no number of 64 bits has more.
_INTEGER, _UNSIGNED = re.compile(r"[+-]?[0-9]{1,40}"), re.compile(r"[0-9]{1,40}")
_STRICTNESSES = ("Ignore", "Strict", "Warn")
_PROPAGATIONS = ("Background", "Foreground", "Orphan")
_MATCHES = ("Exact", "NotOlderThan")
_TRUTHS = {"": False, "true": True, "True": True, "1": True, "t": True, "false": False, "False": False, "0": False}


class ListOptions(Value):
    """What a list or a watch asks for. `resource_version` "" asks for the newest state."""

    labels: ParsedLabelSelector = ParsedLabelSelector()
    fields: FieldSelector = FieldSelector()
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    allow_watch_bookmarks: bool = False
    #: None where the client says nothing of it
    send_initial_events: bool | None = None
    timeout_seconds: int | None = None


class WriteOptions(Value):
    """How a create, update or patch is to be done. `field_manager` names whose fields an apply sets."""

    dry_run: bool = False
    strictness: Strictness = "Warn"
    field_manager: str = ""
    force: bool = False


def list_options(served: Served, query: Mapping[str, str], *, watch: bool = False) -> ListOptions:
    """Raises: BadRequest for unreadable values and unknown field labels, Invalid for options that contradict."""
    initial = query.get("sendInitialEvents")
    options = ListOptions(
        labels=_label_selector(query.get("labelSelector", "")),
        fields=_field_selector(served, query.get("fieldSelector", "")),
        limit=max(_integer(query, "limit") or 0, 0),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        allow_watch_bookmarks=truth(query, "allowWatchBookmarks"),
        send_initial_events=None if initial is None else truth(query, "sendInitialEvents"),
        timeout_seconds=_integer(query, "timeoutSeconds"),
    )
    _refuse("ListOptions", _watch_errors(options) if watch else _list_errors(options))
    revision(options.resource_version)
    return options


def write_options(query: Mapping[str, str], *, operation: str, applies: bool = False) -> WriteOptions:
    """`operation` names the options in errors: "Create", "Update" or "Patch"."""
    strictness = query.get("fieldValidation", "") or "Warn"
    wrong = _dry_run_errors((query["dryRun"],) if "dryRun" in query else ())
    if strictness not in _STRICTNESSES:
        wrong.append(not_supported("fieldValidation", strictness, _STRICTNESSES))
    if "force" in query and not applies:
        wrong.append(forbidden("force", "may not be specified for non-apply patch"))
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > MANAGER_MAX:
        wrong.append(too_long("fieldManager", MANAGER_MAX))
    if not manager.isprintable():
        wrong.append(invalid("fieldManager", manager, "should contain only printable characters"))
    _refuse(f"{operation}Options", wrong)
    return WriteOptions(
        dry_run=bool(query.get("dryRun")),
        strictness=cast("Strictness", strictness),
        field_manager=manager,
        force=truth(query, "force"),
    )


@short_text_cache(1024)
def manager_of_agent(agent: str) -> str:
    """The manager of the fields that a client sets without naming one: the printable characters of its name up to the
    first slash (upstream: managerOrUserAgent).
    """
    name = "".join(filter(str.isprintable, agent.partition("/")[0]))
    return name.encode(errors="replace")[:MANAGER_MAX].decode(errors="ignore") or "unknown"


def delete_options(body: DeleteOptions | None, query: Mapping[str, str]) -> DeleteOptions:
    """The options of a DELETE: its body where it has one, else its query parameters."""
    options = body or DeleteOptions(
        grace_period_seconds=_integer(query, "gracePeriodSeconds"),
        propagation_policy=query.get("propagationPolicy") or None,
        orphan_dependents=truth(query, "orphanDependents") if "orphanDependents" in query else None,
        dry_run=(query["dryRun"],) if query.get("dryRun") else (),
    )
    return checked_deletion(options)


def checked_deletion(options: DeleteOptions) -> DeleteOptions:
    """Raises: Invalid."""
    wrong = _dry_run_errors(options.dry_run)
    policy = options.propagation_policy
    if policy is not None and policy not in _PROPAGATIONS:
        wrong.append(not_supported("propagationPolicy", policy, (*_PROPAGATIONS, "nil")))
    if policy is not None and options.orphan_dependents is not None:
        wrong.append(
            invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
        )
    grace = options.grace_period_seconds
    if grace is not None and grace < 0:
        options = structs.replace(options, grace_period_seconds=1)  # upstream: a negative period means 1
    _refuse("DeleteOptions", wrong)
    return options


def propagation_of(options: DeleteOptions, *, orphans: bool = False) -> Propagation:
    """What becomes of the objects that this one owns; orphanDependents is the old spelling.

    orphans: whether they stay where nothing is said (`Kind.orphaning`).
    """
    if options.propagation_policy:
        return cast("Propagation", options.propagation_policy)
    return "Orphan" if (orphans if options.orphan_dependents is None else options.orphan_dependents) else "Background"


def truth(query: Mapping[str, str], name: str) -> bool:
    """A flag of the query string. Present without a known value means true, as upstream reads it."""
    return _TRUTHS.get(query.get(name, ""), True)


def _integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not _INTEGER.fullmatch(text) or not -(1 << 63) <= (number := int(text)) < 1 << 63:
        raise BadRequest(f"{name}: {text!r} is not a whole number of 64 bits")
    return number


def _label_selector(text: str) -> ParsedLabelSelector:
    try:
        return parse_label_selector(text)
    except ValueError as error:
        raise BadRequest(f"unable to parse labelSelector: {error}") from error


def _field_selector(served: Served, text: str) -> FieldSelector:
    try:
        selector = parse_field_selector(text)
    except ValueError as error:
        raise BadRequest(f"unable to parse fieldSelector: {error}") from error
    kind = served.kind
    own = served.conversion.selectable if served.conversion else {}
    known = {"metadata.name", *(own or ("metadata.namespace", *kind.selectable(kind.type())))}
    for requirement in selector.requirements:
        if requirement.field not in known:
            raise BadRequest(f"field label not supported: {requirement.field}")
    if not own:
        return selector
    requirements = (replace(one, field=own.get(one.field, one.field)) for one in selector.requirements)
    return FieldSelector(tuple(requirements))


def revision(text: str) -> int:
    """The number in a resourceVersion; 0 for "". Raises: BadRequest."""
    if not text:
        return 0
    if not _UNSIGNED.fullmatch(text):
        why = "invalid syntax"
    elif (number := int(text)) < 1 << 64:
        return number
    else:
        why = "value out of range"
    wrong = invalid("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": {why}')
    raise BadRequest(f"invalid resource version: {wrong}")


def _list_errors(options: ListOptions) -> list[FieldError]:
    wrong: list[FieldError] = []
    match = options.resource_version_match
    if options.send_initial_events is not None:
        wrong.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if not match:
        return wrong
    if not options.resource_version:
        wrong.append(
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        )
    if options.continue_token:
        wrong.append(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if match not in _MATCHES:
        wrong.append(not_supported("resourceVersionMatch", match, (*_MATCHES, "")))
    if match == "Exact" and options.resource_version == "0":
        wrong.append(
            forbidden("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        )
    return wrong


def _watch_errors(options: ListOptions) -> list[FieldError]:
    wrong: list[FieldError] = []
    match, initial = options.resource_version_match, options.send_initial_events
    if match and initial is None:
        wrong.append(
            forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    if initial is not None and not match:
        wrong.append(
            forbidden("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        )
    if match and initial is not None and match != "NotOlderThan":
        wrong.append(not_supported("resourceVersionMatch", match, ("NotOlderThan",)))
    if options.continue_token:
        wrong.append(forbidden("continue", "continue is forbidden for watch"))
    return wrong


def _dry_run_errors(values: tuple[str, ...]) -> list[FieldError]:
    return [not_supported("dryRun", value, ("All",)) for value in values if value not in ("All", "")]


def _refuse(options: str, wrong: list[FieldError]) -> None:
    if wrong:
        raise Invalid.of(kind=options, group="meta.k8s.io", name="", errors=wrong)


# Bodies ---------------------------------------------------------------------------------------------------------------


_JSON = "application/json"


def decode_object(served: Served, body: bytes, *, content_type: str, strictness: Strictness) -> Decoded:
    """The object in the body of a create or update, as the store knows it. Raises: BadRequest, UnsupportedMediaType."""
    content_type = content_type or _JSON
    if served.conversion is None:
        return codec.decode(served.kind, body, content_type=content_type, strictness=strictness)
    if documents.media_type(content_type) == codec.PROTOBUF_MEDIA:
        if served.kind.is_open:
            raise UnsupportedMediaType(f"{served.kind.kind} objects are read as JSON or YAML, not as protobuf")
        document = codec.read_protobuf(served.shape, body)
    else:
        document = codec.read_document(body, content_type=content_type)
    return decode_document(served, document, strictness=strictness)


def decode_document(served: Served, document: Any, *, strictness: Strictness) -> Decoded:
    """The same for a document of builtins. Raises: BadRequest."""
    if served.conversion is not None and isinstance(document, dict):
        given = document.get("apiVersion") or served.api_version
        if given != served.api_version:
            raise BadRequest(
                f"the API version in the data ({given}) does not match the expected API version ({served.api_version})"
            )
        if served.conversion.checked is not None:
            checked = served.conversion.checked({**document, "apiVersion": given}, strictness)
            document = served.to_storage(codec.to_builtins(checked.object))
            return Decoded(codec.decode_document(served.kind, document, strictness="Ignore").object, checked.warnings)
        if served.conversion.type is not None:
            return _decode_shaped(served, {**document, "apiVersion": given}, strictness=strictness)
        document = served.to_storage({**document, "apiVersion": given})
    return codec.decode_document(served.kind, document, strictness=strictness)


def _decode_shaped(served: Served, document: dict[str, Any], *, strictness: Strictness) -> Decoded:
    """A document of a version with a shape of its own: what is wrong with it is told in the words of that shape."""
    if document.get("kind", served.kind.kind) != served.kind.kind:
        return codec.decode_document(served.kind, document | {"apiVersion": served.kind.api_version}, strictness="Warn")
    checked, warnings = codec.checked_document(
        served.shape, document, api_version=served.api_version, strictness=strictness
    )
    decoded = codec.decode_document(served.kind, served.to_storage(checked), strictness="Ignore", asides=True)
    return Decoded(decoded.object, warnings)


def decode_delete_options(body: bytes, content_type: str) -> DeleteOptions | None:
    """The body of a DELETE; None where it has none. Raises: BadRequest."""
    if not body:
        return None
    return codec.decode_body(DeleteOptions, body, content_type=content_type or _JSON)


@cache
def virtual_kind(type_: type[ApiObject], *, group: str, version: str = "v1", namespaced: bool = False) -> Kind:
    """A kind that is decoded and answered, and never reaches the store."""
    name = type_.__name__
    return Kind(
        group=group,
        version=version,
        kind=name,
        plural=f"{name.lower()}s",
        namespaced=namespaced,
        type=type_,
        validate_create=lambda _obj: (),
        validate_update=lambda _new, _old: (),
    )
