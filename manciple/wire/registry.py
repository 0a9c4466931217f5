"""Which kinds exist, and what each is: names, type, rules, columns.

The apps describe their kinds as pure data (`inventory.kinds`, `claims.kinds`, `manciple.wire.machinery`) and register
them from `AppConfig.ready()`. The API and the store look kinds up here; they never import one.

The store knows one version of every document (`kind.version`). A kind may be served under others as well
(`kind.served_versions`, `Served`); then what comes in is converted to the stored version before anything looks at it,
and what goes out is converted last. Everything in between sees stored objects only.

A version may have no place for something that another one has. Such fields are stored with the object (`base.aside`)
and neither shown nor lost: what a version has no place for is taken over from the stored object when it is written
through that version (`Served.completed`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import orjson
from msgspec.structs import replace

from manciple.wire.base import ASIDE, ApiObject, OpenObject, Value, declarations
from manciple.wire.errors import FieldError

#: What clients may do with the objects of a kind, in the order in which discovery lists it.
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

#: new object (create), or (new, old) (update); returns the object as it will be stored.
PrepareCreate = Callable[[Any], Any]
PrepareUpdate = Callable[[Any, Any], Any]
#: Every wrong field, each with its path; an empty sequence means valid.
ValidateCreate = Callable[[Any], Sequence[FieldError]]
ValidateUpdate = Callable[[Any, Any], Sequence[FieldError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of `kubectl get`; `priority` 0 always shows, 1 only with -o wide."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    #: (object, now as POSIX seconds) -> the cell's value
    cell: Callable[[Any, float], str | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """How a write through `.../NAME/<subresource>` is prepared and checked (for example `status`)."""

    #: (new, old) -> merged: only the fields this subresource owns are taken from `new`
    prepare_update: PrepareUpdate
    validate_update: ValidateUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A subresource that is a document of another kind, made of parts of the object, and written back into them."""

    group: str
    version: str
    kind: str
    #: of the documents; None where OpenAPI says nothing of them
    type: type[ApiObject] | None = None
    #: the stored object -> the document, as clients read it. Raises: ApiError where the object lacks the parts.
    read: Callable[[Any], dict[str, Any]]
    #: the stored object -> the document, as admission sees it
    show: Callable[[Any], ApiObject]
    #: (the stored object, what makes the new document of the old) -> the object. Raises: ApiError.
    write: Callable[[Any, Callable[[dict[str, Any]], dict[str, Any]]], Any]
    #: an applied document -> what it says of the object, as a sparse document of it. Raises: ApiError.
    sparse: Callable[[Mapping[str, Any]], dict[str, Any]]


#: Where a field stands, by its attributes or by its names in JSON, from the object down; never within a list.
Place = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules:
    """The rules of a version that are other than those of the stored one. All are given stored objects; the paths of
    what they find are those of their version.
    """

    validate_create: ValidateCreate
    validate_update: ValidateUpdate
    #: subresource -> its rule
    subresources: Mapping[str, ValidateUpdate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How documents of another served version become those of the storage version, and back.

    Both take and return a whole object as builtins (apiVersion included); `to_storage` leaves its argument as it is,
    `from_storage` may make use of it. Fields that they do not know pass through untouched, so that strict decoding
    still names them.
    """

    to_storage: Callable[[dict[str, Any]], dict[str, Any]]
    from_storage: Callable[[dict[str, Any]], dict[str, Any]]
    #: the shape of the version: its bodies are checked and OpenAPI is written by it, its field numbers are those of
    #: protobuf; None where it is that of the stored version
    type: type[ApiObject] | None = None
    #: documents that were stored after this revision are answered as they are; None where none is
    verbatim_after: int | None = None
    #: whether clients find the version
    is_served: Callable[[], bool] = lambda: True
    #: what of a stored object the version has no place for; None: what is kept aside, all of it
    keeps: tuple[Place, ...] | None = None
    #: None: those of the kind
    rules: VersionRules | None = None
    #: of `kubectl get`, over stored objects; () where they are those of the kind
    columns: tuple[Column, ...] = ()
    #: its own names of fields that objects can be listed by -> the kind's
    selectable: Mapping[str, str] = field(default_factory=dict)
    #: (a body, how strictly) -> it as an object of the version, with warnings (`codec.Decoded`), where that is to be
    #: known before it is converted. Raises: BadRequest.
    checked: Callable[[Any, Any], Any] | None = None
    #: `from_storage` of several at once, which takes as long as one: somebody else is asked
    many: Callable[[Sequence[dict[str, Any]]], Sequence[dict[str, Any]]] | None = None


def no_grace(_obj: Any) -> None:
    """Of kinds that a DELETE removes at once."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a value is split into fields.

    kind: "struct" of a type's fields, "map" of elements, "keyed" list, "set" of scalars, "atomic": one field, or
    "deduced" from the value: objects are split, all else is one field.
    """

    kind: Literal["struct", "map", "keyed", "set", "atomic", "deduced"]
    type: type[Value] | None = None
    #: of maps and keyed lists: the shape of their elements
    element: Splitting | None = None
    keys: tuple[str, ...] = ()
    #: of a struct whose fields no type declares: the shape of each, and in `element` that of all others
    members: Mapping[str, Splitting] = field(default_factory=dict)
    #: of keyed lists: what keys are that an element leaves out
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    #: Go writes such a struct or list even when it is empty, so it never comes or goes
    permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Everything the API server needs to know to serve one kind."""

    group: str  # "" for core
    version: str
    kind: str = ""  # the name of `type` where it is left out
    plural: str
    singular: str = ""  # `kind` in small letters where it is left out
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    #: which of `VERBS` clients may use; reading is always among them
    verbs: tuple[str, ...] = VERBS
    #: what a client who tries one of the others is told besides that it cannot
    without_verbs: str = ""
    type: type[ApiObject]
    prepare_create: PrepareCreate = lambda new: new
    prepare_update: PrepareUpdate = lambda new, _old: new
    #: a new object that has its name and its uid -> with what is made of these
    identified: Callable[[Any], Any] = lambda new: new
    #: (prepared, as the client sent it) -> without what admission has added, which no client owns
    without_admission: PrepareUpdate = lambda prepared, _sent: prepared
    validate_create: ValidateCreate
    validate_update: ValidateUpdate
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    #: field selector values beyond metadata.name and metadata.namespace, e.g. {"spec.nodeName": "n1"}
    selectable: Callable[[Any], Mapping[str, str]] = lambda _obj: {}
    columns: tuple[Column, ...] = ()
    #: the part whose change increments metadata.generation; None where the kind does not count generations
    generation_of: Callable[[Any], Any] | None = None
    #: the part by which other writes are judged (a limit, a default); None where the kind judges none
    policy_of: Callable[[Any], Any] | None = None
    #: seconds a DELETE without grace period waits for the owner to let go (pods: by spec); None: at once, whatever the
    #: client wants (pods: those without a node, and those that have ended)
    grace_seconds: Callable[[Any], int | None] = no_grace
    #: the other versions under which the kind is served: "v1beta1" -> its conversion; `version` is the one stored. One
    #: of another group is "GROUP/VERSION"
    served_versions: Mapping[str, Conversion] = field(default_factory=dict)
    #: whether clients find it; the store keeps its objects either way (a feature that is off and may come back)
    is_served: Callable[[], bool] = lambda: True
    #: an immutable field that upstream takes every PATCH but apply for a change of, whatever it says; "": there is none
    unpatchable: str = ""
    #: the warning to clients that delete an object without a propagation policy, which then keeps its dependents; "":
    #: they go with it
    orphaning: str = ""
    #: its documents are encrypted in the database and shown to nobody who may not get the object itself
    confidential: bool = False
    description: str = ""
    #: "v1", "resource.k8s.io/v1"
    api_version: str = field(init=False)
    #: `plural.group`, as error messages and the store name it: "pods", "resourceclaims.resource.k8s.io"
    resource: str = field(init=False)
    #: whether no type declares what the objects hold
    is_open: bool = field(init=False)
    #: of a kind that no type declares: (the content, what is found wrong with it: `codec.Findings`) -> the content as
    #: it may be: without unknown fields, with defaults
    fit: Callable[[dict[str, Any], Any], dict[str, Any]] | None = None
    #: (an object that is written again, the revision at which it was before) -> it, as the schema has it by now, which
    #: answers rely on (`Conversion.verbatim_after`)
    refitted: Callable[[Any, int], Any] | None = None
    #: an object that was stored in another version than the present one, as the present one has it; it may ask somebody
    #: else, so it is not for transactions
    upgraded: Callable[[Any], Any] = lambda obj: obj
    #: `fit` without defaults, for a document with only some of an object's fields; reports what it drops
    prune: Callable[[dict[str, Any], Callable[[str], None]], dict[str, Any]] | None = None
    #: what server-side apply takes for one field; None where the type says so
    splitting: Splitting | None = None
    #: how OpenAPI describes the content, in its version 3 and in its version 2; None where the type says so
    schema: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    #: a part of the object that is served as another document: "scale"
    projections: Mapping[str, Projection] = field(default_factory=dict)
    #: the plural in words where it is not KIND with List behind it
    list_kind: str = ""
    #: bodies in protobuf are not read: the type has no field numbers
    without_protobuf: bool = False
    #: what every client is warned of who uses the version
    deprecation: str = ""
    #: the text of an answer -> the same for clients that decode it into Kubernetes' types, which know less
    text_for_typed_clients: Callable[[str], str] | None = None

    def create_rule(self, version: str) -> ValidateCreate:
        """What judges an object that is created through `version`."""
        rules = self._rules_of(version)
        return rules.validate_create if rules else self.validate_create

    def update_rule(self, version: str, subresource: str = "") -> ValidateUpdate:
        """What judges an object, or the part that `subresource` owns, that is replaced through `version`."""
        rules = self._rules_of(version)
        if not subresource:
            return rules.validate_update if rules else self.validate_update
        own = rules.subresources.get(subresource) if rules else None
        return own or self.subresources[subresource].validate_update

    def _rules_of(self, version: str) -> VersionRules | None:
        conversion = self.served_versions.get(version)
        return conversion.rules if conversion else None

    @property
    def listed_as(self) -> str:
        """The kind of its lists."""
        return self.list_kind or f"{self.kind}List"

    def __post_init__(self) -> None:
        """Every write of an object asks for these a dozen times."""
        object.__setattr__(self, "kind", self.kind or self.type.__name__)
        object.__setattr__(self, "singular", self.singular or self.kind.lower())
        object.__setattr__(self, "is_open", self.type is OpenObject)
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        object.__setattr__(self, "resource", f"{self.plural}.{self.group}" if self.group else self.plural)


@dataclass(frozen=True, slots=True)
class Served:
    """`conversion` is None for the stored version, whose texts are answered verbatim."""

    kind: Kind
    version: str
    conversion: Conversion | None = None

    @property
    def group(self) -> str:
        return self.version.rpartition("/")[0] or self.kind.group

    @property
    def own_version(self) -> str:
        """Within its group."""
        return self.version.rpartition("/")[2]

    @property
    def place(self) -> tuple[str, str, str]:
        """(group, version, plural), where clients find it."""
        return self.group, self.own_version, self.kind.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.own_version}" if self.group else self.version

    @property
    def shape(self) -> type[ApiObject]:
        """The type of the version's documents."""
        return (self.conversion and self.conversion.type) or self.kind.type

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.conversion and self.conversion.columns) or self.kind.columns

    @property
    def is_served(self) -> bool:
        return self.kind.is_served() and (self.conversion is None or self.conversion.is_served())

    @property
    def hides_asides(self) -> bool:
        """Whether the version shows nothing of what is kept aside."""
        return self.conversion is None or self.conversion.keeps is None

    def text(self, stored_text: str, revision: int = 0) -> str:
        """A stored document's text as this version answers it. revision: of the document, where it is known."""
        if self.conversion is None:
            if not asides(self.kind.type) or _ASIDE_IN_TEXT not in stored_text:
                return stored_text
        elif self.conversion.verbatim_after is not None and revision > self.conversion.verbatim_after:
            return stored_text
        return orjson.dumps(self.document(orjson.loads(stored_text))).decode()

    def texts(self, stored: Sequence[tuple[str, int]]) -> list[str]:
        """`text` of several (text, revision)."""
        if self.conversion is None or self.conversion.many is None:
            return [self.text(*one) for one in stored]
        shown = self.conversion.many([orjson.loads(text) for text, _ in stored])
        return [orjson.dumps(document).decode() for document in shown]

    @property
    def is_slow(self) -> bool:
        """Whether somebody else is asked for the documents: not in an event loop, nor within a transaction."""
        return self.conversion is not None and self.conversion.many is not None

    def document(self, stored_document: dict[str, Any]) -> dict[str, Any]:
        """A stored document as this version answers it."""
        if asides(self.kind.type):
            stored_document = _with_names_of_clients(stored_document)
        if self.hides_asides:
            stored_document = self._without_asides(stored_document)
        return self.conversion.from_storage(stored_document) if self.conversion else stored_document

    def to_storage(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document of this version as the store knows it. What it says of fields aside under their stored names is
        not the client's to say.
        """
        document = self._without_asides(document)
        return self.conversion.to_storage(document) if self.conversion else document

    def completed(self, new: Any, old: Any) -> Any:
        """What replaces the stored object `old`, with all of it that this version has no place for."""
        if self.conversion is not None and self.conversion.keeps is not None:
            places: Iterable[Place] = self.conversion.keeps
        else:
            places = (place.attributes for place in asides(self.kind.type))
        for place in places:
            new = _taken_over(new, old, place)
        return new

    def _without_asides(self, document: dict[str, Any]) -> dict[str, Any]:
        for place in asides(self.kind.type):
            document = _without(document, place.names)
        return document


def _with_names_of_clients(document: dict[str, Any]) -> dict[str, Any]:
    """managedFields name what is kept aside as the versions do that show it."""
    metadata = document.get("metadata") or {}
    owned = metadata.get("managedFields")
    entries = orjson.dumps(owned) if owned else b""
    if _ASIDE_OWNED not in entries:
        return document
    named = orjson.loads(entries.replace(_ASIDE_OWNED, b'"f:'))
    return {**document, "metadata": {**metadata, "managedFields": named}}


_ASIDE_OWNED = f'"f:{ASIDE}'.encode()
#: How a name begins in the text of a document that holds something aside.
_ASIDE_IN_TEXT = f'"{ASIDE}'


class Aside(NamedTuple):
    """A field that is kept aside: by its attributes, by its names in JSON."""

    attributes: Place
    names: Place


@cache
def asides(type_: type[Value]) -> tuple[Aside, ...]:
    """What objects of the type keep aside."""
    found: list[Aside] = []
    for declared in declarations(type_) if type_ is not OpenObject else ():
        if declared.aside:
            found.append(Aside((declared.attribute,), (declared.name,)))
        elif not declared.shape.container and issubclass(declared.shape.element, Value):
            below = asides(declared.shape.element)
            found += (Aside((declared.attribute, *one[0]), (declared.name, *one[1])) for one in below)
    return tuple(found)


def _taken_over(new: Any, old: Any, place: Place) -> Any:
    """`new` with what `old` has at `place`, where both have what it is a part of."""
    attribute, *rest = place
    has, had = getattr(new, attribute), getattr(old, attribute)
    if rest and (has is None or had is None):
        return new
    part = _taken_over(has, had, tuple(rest)) if rest else had
    return new if part is has else replace(new, **{attribute: part})


def _without(document: dict[str, Any], names: Place) -> dict[str, Any]:
    """A copy without what stands there; the same document where nothing does."""
    name, *rest = names
    if name not in document:
        return document
    if not rest:
        return {key: value for key, value in document.items() if key != name}
    part = document[name]
    inner = _without(part, tuple(rest)) if isinstance(part, dict) else part
    return document if inner is part else {**document, name: inner}


class Added(Protocol):
    """Kinds that come and go while the process runs. What it gives is never changed, only replaced."""

    #: different whenever anything is
    edition: int
    by_resource: Mapping[str, Kind]
    #: (group, version, plural) -> what is served there, in the order in which clients prefer the versions of a group
    served: Mapping[tuple[str, str, str], Served]


class Nothing:
    """No kinds were added."""

    edition = 0
    by_resource: Mapping[str, Kind] = MappingProxyType({})
    served: Mapping[tuple[str, str, str], Served] = MappingProxyType({})


#: (group, version, plural) -> whether clients may find what is registered there
Restriction = Callable[[str, str, str], bool]


class _Kinds(dict[str, Kind]):
    """The server's own kinds by resource; another resource is looked for each time: what was added comes and goes."""

    def __init__(self, find_added: Callable[[str], Kind]) -> None:
        self._find_added = find_added

    def __missing__(self, resource: str) -> Kind:
        return self._find_added(resource)


class Registry:
    """The kinds of one process, in the order of registration, and behind them those that were added (`extend`)."""

    def __init__(self) -> None:
        self._by_resource = _Kinds(self._find_added)
        #: the kind of a resource. Raises: KeyError for one that nobody registered
        self.by_resource: Callable[[str], Kind] = self._by_resource.__getitem__
        self._by_gvr: dict[tuple[str, str, str], Kind] = {}
        self._served: dict[tuple[str, str, str], Served] = {}
        self._added: Callable[[bool], Added] = lambda _surely: Nothing()
        self._restrictions: list[Restriction] = []
        #: what the restrictions say, by place
        self._allowed: dict[tuple[str, str, str], bool] = {}

    def register(self, kind: Kind) -> None:
        """Add `kind`. Raises: ValueError when its resource is already registered by another declaration."""
        known = self._by_resource.get(kind.resource)
        if known is not None and known is not kind:
            raise ValueError(f"{kind.resource} is registered twice")
        self._by_resource[kind.resource] = kind
        self._by_gvr[(kind.group, kind.version, kind.plural)] = kind
        for served in (Served(kind, kind.version), *(Served(kind, *one) for one in kind.served_versions.items())):
            self._served[served.place] = served

    def restrict(self, restriction: Restriction) -> None:
        """Serve only what `restriction` allows, of what is registered. The store keeps the objects of the others."""
        self._restrictions.append(restriction)
        self._allowed.clear()

    def ask_restrictions_again(self) -> None:
        """Their answers have changed."""
        self._allowed.clear()

    def _is_served(self, served: Served) -> bool:
        place = served.place
        allowed = self._allowed.get(place)
        if allowed is None:
            allowed = self._allowed[place] = all(allows(*place) for allows in self._restrictions)
        return allowed and served.is_served

    def versions_of(self, kind: Kind) -> Iterator[Served]:
        """Those that clients find; the stored version first: clients prefer what is named first."""
        every = (Served(kind, kind.version), *(Served(kind, *one) for one in kind.served_versions.items()))
        return filter(self._is_served if kind.resource in self._by_resource else attrgetter("is_served"), every)

    def extend(self, added: Callable[[bool], Added]) -> None:
        """Serve what `added` gives besides what is registered. It is asked whenever that matters, and told whether
        only the newest answer will do.
        """
        self._added = added

    def added(self) -> Added:
        """The kinds that came while the process runs."""
        return self._added(False)

    def _find_added(self, resource: str) -> Kind:
        """Raises: KeyError."""
        return self._added(False).by_resource.get(resource) or self._added(True).by_resource[resource]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_gvr.get((group, version, plural))

    def find_kind(self, api_version: str, kind: str) -> Kind | None:
        """By apiVersion and kind, as an object or an owner reference names it."""
        return next((k for k in self if k.api_version == api_version and k.kind == kind), None)

    def served(self, group: str, version: str, plural: str) -> Served | None:
        """What is served at GROUP/VERSION/PLURAL."""
        place = (group, version, plural)
        found = self._served.get(place)
        if found is not None:
            return found if self._is_served(found) else None
        return self._added(False).served.get(place) or self._added(True).served.get(place)

    def of_kind(self, group: str, version: str, kind: str) -> Kind | None:
        """By group and kind, under whichever of its served versions `version` is."""
        wanted = (group, version, kind)
        return (
            _named(self._by_resource, wanted)
            or _named(self._added(False).by_resource, wanted)
            or _named(self._added(True).by_resource, wanted)
        )

    def registered(self) -> Iterator[Served]:
        """Each version of the server's own kinds, served or not."""
        return iter(self._served.values())

    def served_as(self, kind: Kind, version: str) -> Served | None:
        """The kind in that version, which may be of another group."""
        group, _, own_version = version.rpartition("/")
        return self.served(group or kind.group, own_version, kind.plural)

    def is_own(self, group: str, version: str, plural: str) -> bool:
        """Whether a kind of the server's own is served there; nobody is asked for what was added."""
        return (group, version, plural) in self._served

    def in_version(self, group: str, version: str) -> Iterator[Served]:
        """Everything served in one API version, in the order of registration."""
        for kind in self._by_resource.values():
            if kind.group == group or f"{group}/{version}" in kind.served_versions:
                yield from (served for served in self.versions_of(kind) if served.place[:2] == (group, version))
        for place, served in self._added(False).served.items():
            if place[:2] == (group, version):
                yield served

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Every API group ("" is core) and its versions, the preferred one first."""
        found: dict[str, set[str]] = {}
        for kind in self._by_resource.values():
            for served in self.versions_of(kind):
                found.setdefault(served.group, set()).add(served.own_version)
        for group, version, _plural in self._added(False).served:
            found.setdefault(group, set()).add(version)
        return {group: tuple(sorted(versions, key=version_priority)) for group, versions in found.items()}

    def __iter__(self) -> Iterator[Kind]:
        return iter((*self._by_resource.values(), *self._added(False).by_resource.values()))


def _named(kinds: Mapping[str, Kind], wanted: tuple[str, str, str]) -> Kind | None:
    group, version, name = wanted
    for kind in kinds.values():
        if (kind.group, kind.kind) == (group, name) and (version == kind.version or version in kind.served_versions):
            return kind
    return None


#: The registry of this process. Filled by AppConfig.ready() only.
registry = Registry()


# The order of versions ------------------------------------------------------------------------------------------------


_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {"": 0, "beta": 1, "alpha": 2}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """A sorting key, the preferred first: v2 before v1, both before v1beta2, that before v1alpha1, others last.

    Source: apimachinery/pkg/version/helpers.go.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return (len(_STAGES), 0, 0, version)
    major, stage, minor = match.groups()
    return (_STAGES[stage or ""], -int(major), -int(minor or 0), version)
