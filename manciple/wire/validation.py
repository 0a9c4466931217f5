"""What every kind checks alike: paths to fields, metadata, conditions, and the shapes of lists, sets and maps.

Rules return a list of `FieldError`s, all of them, each with its path; callers add the lists up. Sources:
apimachinery/pkg/api/validation/objectmeta.go, apimachinery/pkg/apis/meta/v1/validation/validation.go
(ValidateConditions) and the collection rules of pkg/apis/resource/validation/validation.go.

Which texts may name something, in upstream's words, and how names are made: every rule is a function
`check_*(text) -> tuple[str, ...]`: the messages of what is wrong, empty when nothing is. Callers put a field path
before them. Sources: apimachinery/pkg/api/validate/content and apimachinery/pkg/util/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any, Protocol, TypeVar

from manciple.wire.base import Condition, ObjectMeta, OwnerReference, Value
from manciple.wire.errors import (
    FieldError,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from manciple.wire.limits import check_time, short_text_cache

# Names ----------------------------------------------------------------------------------------------------------------


DNS_LABEL_MAX = 63
DNS_SUBDOMAIN_MAX = 253
LABEL_VALUE_MAX = 63
DRIVER_NAME_MAX = 63
POOL_NAME_MAX = 253
#: A device attribute's identifier and the domain before its slash.
IDENTIFIER_MAX = 32
IDENTIFIER_DOMAIN_MAX = 63

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_C_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_ENV_NAME_UNPRINTABLE = re.compile(r"[^\x20-\x7e]|=")

_LABEL_RE = re.compile(_LABEL)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_DNS_1035_LABEL_RE = re.compile(_DNS_1035_LABEL)
_QUALIFIED_RE = re.compile(_QUALIFIED)
_LABEL_VALUE_RE = re.compile(_LABEL_VALUE)
_C_IDENTIFIER_RE = re.compile(_C_IDENTIFIER)

_ALPHANUMERIC_EDGES = "and must start and end with an alphanumeric character"
_LABEL_RULE = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALPHANUMERIC_EDGES}"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    + _ALPHANUMERIC_EDGES
)
_DNS_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_QUALIFIED_RULE = f"must consist of alphanumeric characters, '-', '_' or '.', {_ALPHANUMERIC_EDGES}"
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    + _ALPHANUMERIC_EDGES
)
_C_IDENTIFIER_RULE = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_'"
)

#: What upstream's name generator draws from: no vowels, and nothing that is easily misread.
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
#: A generated name is never longer than a DNS label: base cut to this length, then the suffix.
GENERATED_BASE_MAX = DNS_LABEL_MAX - SUFFIX_LENGTH

#: The resource name by which any DeviceClass can be asked for: this, and the class's name.
DEVICE_CLASS_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"

Messages = tuple[str, ...]


def regex_message(rule: str, pattern: str, *examples: str) -> str:
    """A rule with examples and the pattern, worded as upstream's RegexError."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def too_long_message(maximum: int, unit: str = "characters") -> str:
    """unit: what Kubernetes calls it. It counts bytes either way."""
    return f"must be no more than {maximum} {unit}"


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


@short_text_cache(16384)
def check_dns_label(text: str) -> Messages:
    """RFC 1123 label: namespaces, devices, requests, containers."""
    found = [] if _byte_length(text) <= DNS_LABEL_MAX else [too_long_message(DNS_LABEL_MAX)]
    if not _LABEL_RE.fullmatch(text):
        dotted = _SUBDOMAIN_RE.fullmatch(text) is not None
        found.append("must not contain dots" if dotted else regex_message(_LABEL_RULE, _LABEL, "my-name", "123-abc"))
    return tuple(found)


@short_text_cache(16384)
def check_dns_subdomain(text: str) -> Messages:
    """RFC 1123 subdomain: most objects' names."""
    return _check_dns_subdomain(text, "characters")


def _check_dns_subdomain(text: str, unit: str) -> Messages:
    """unit: see `too_long_message`."""
    found = [] if _byte_length(text) <= DNS_SUBDOMAIN_MAX else [too_long_message(DNS_SUBDOMAIN_MAX, unit)]
    if not _SUBDOMAIN_RE.fullmatch(text):
        found.append(regex_message(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"))
    return tuple(found)


def check_dns_1035_label(text: str) -> Messages:
    found = [] if _byte_length(text) <= DNS_LABEL_MAX else [too_long_message(DNS_LABEL_MAX)]
    if not _DNS_1035_LABEL_RE.fullmatch(text):
        found.append(regex_message(_DNS_1035_RULE, _DNS_1035_LABEL, "my-name", "abc-123"))
    return tuple(found)


@short_text_cache(16384)
def check_label_key(text: str) -> Messages:
    """A qualified name: label keys, annotation keys, finalizers, taint keys, condition types, resource names."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        rule = regex_message(f"a valid label key {_QUALIFIED_RULE}", _QUALIFIED, "MyName", "my.name", "123-abc")
        return (f"{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found.extend(f"prefix part {message}" for message in _check_dns_subdomain(prefix, "bytes"))
    if not name:
        found.append("name part must be non-empty")
    elif _byte_length(name) > DNS_LABEL_MAX:
        found.append(f"name part {too_long_message(DNS_LABEL_MAX, 'bytes')}")
    if not _QUALIFIED_RE.fullmatch(name):
        found.append(regex_message(f"name part {_QUALIFIED_RULE}", _QUALIFIED, "MyName", "my.name", "123-abc"))
    return tuple(found)


@short_text_cache(16384)
def check_label_value(text: str) -> Messages:
    found = [] if _byte_length(text) <= LABEL_VALUE_MAX else [too_long_message(LABEL_VALUE_MAX, "bytes")]
    if not _LABEL_VALUE_RE.fullmatch(text):
        found.append(regex_message(_LABEL_VALUE_RULE, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return tuple(found)


def check_path_segment(text: str, *, prefix: bool = False) -> Messages:
    """Whatever can be one segment of a path (upstream: content.IsPathSegmentName). prefix: a name's beginning."""
    found = [f"may not be '{text}'"] if text in (".", "..") and not prefix else []
    return (*found, *(f"may not contain '{one}'" for one in ("/", "%") if one in text))


def check_c_identifier(text: str) -> Messages:
    """A C identifier of any length; the length is the caller's limit."""
    if _C_IDENTIFIER_RE.fullmatch(text):
        return ()
    return (regex_message(_C_IDENTIFIER_RULE, _C_IDENTIFIER, "my_name", "MY_NAME", "MyName"),)


def check_driver_name(text: str) -> Messages:
    """A DRA driver's name: a DNS subdomain in any case. Its length (63 bytes) and emptiness are the caller's errors."""
    return check_dns_subdomain(text.lower())


def check_environment_name(text: str) -> Messages:
    """An environment variable's name, by the relaxed rule of Kubernetes 1.34."""
    found: list[str] = []
    if not text:
        found.append("environment variable name must be non-empty")
    if _ENV_NAME_UNPRINTABLE.search(text):
        found.append("a valid environment variable name must consist only of printable ASCII characters other than '='")
    return tuple(found)


def check_port_name(text: str) -> Messages:
    """An IANA service name."""
    found = [] if len(text) <= 15 else [too_long_message(15)]  # noqa: PLR2004 - RFC 6335's own limit
    if not re.fullmatch("[-a-z0-9]+", text):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        found.append("must contain at least one letter (a-z)")
    if "--" in text:
        found.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return tuple(found)


def is_extended_resource_name(text: str) -> bool:
    """Whether `text` may name an extended resource: domain-prefixed, not kubernetes.io's, usable in a quota's name."""
    if "/" not in text or "kubernetes.io/" in text or text.startswith("requests."):
        return False
    return not check_label_key(f"requests.{text}")


def is_device_resource_name(text: str) -> bool:
    """Whether a container that names this resource asks for whole devices: an extended resource, or a class by name."""
    return is_extended_resource_name(text) or text.startswith(DEVICE_CLASS_RESOURCE_PREFIX)


def _as_prefix(text: str) -> str:
    """A generateName that ends in a hyphen is judged as if a name followed."""
    return f"{text[:-1]}a" if text.endswith("-") else text


def check_object_name(text: str, *, prefix: bool = False) -> Messages:
    """The rule of most kinds: a DNS subdomain. `prefix`: `text` is a generateName."""
    return check_dns_subdomain(_as_prefix(text) if prefix else text)


def check_namespace_name(text: str, *, prefix: bool = False) -> Messages:
    return check_dns_label(_as_prefix(text) if prefix else text)


@short_text_cache(20_000)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sorting key that puts node-2 before node-10."""
    parts: list[tuple[int, int, str]] = []
    digits = text = ""
    for character in f"{name}\0":
        if character.isdigit() and character.isascii():
            digits += character
            continue
        if digits:
            parts += [(1, 0, text), (0, int(digits), "")]
            digits = text = ""
        text += character
    return (*parts, (1, 0, text))


_NUMBER = re.compile("[0-9]+")


def natural_text(name: str) -> str:
    """A column that orders names of objects as `natural` does: each number follows its length."""

    def padded(number: re.Match[str]) -> str:
        digits = number[0].lstrip("0") or "0"
        return f"!{len(digits):03}{digits}"

    return f'{_NUMBER.sub(padded, name)}"'  # names have no character before "-": numbers sort first, the end next


def random_suffix(random: Random) -> str:
    number, suffix = random.getrandbits(64), ""
    for _ in range(SUFFIX_LENGTH):
        number, at = divmod(number, len(SUFFIX_ALPHABET))
        suffix += SUFFIX_ALPHABET[at]
    return suffix


def generate_name(base: str, random: Random) -> str:
    """The name that a generateName becomes (upstream: apiserver/pkg/storage/names/generate.go)."""
    return base[:GENERATED_BASE_MAX] + random_suffix(random)


def claim_generate_name(pod_name: str, claim_name: str) -> str:
    """The generateName of a claim made from a template for the entry `claim_name` of a pod's spec.resourceClaims.

    What does not fit into a DNS label with its hyphen and suffix is cut from both parts in proportion to their lengths,
    so that neither name vanishes (upstream: pkg/controller/resourceclaim/controller.go, handleClaim).
    """
    whole = f"{pod_name}-{claim_name}-"
    room = GENERATED_BASE_MAX - 1
    if len(whole) <= room:
        return whole
    pod_part = pod_name[: len(pod_name) * room // len(whole)]
    claim_part = claim_name[: len(claim_name) * room // len(whole)]
    return f"{pod_part}-{claim_part}"


# Fields ---------------------------------------------------------------------------------------------------------------


#: All annotations of an object together, keys and values, in bytes.
ANNOTATIONS_MAX = 256 * 1024

ORPHAN_FINALIZER = "orphan"
FOREGROUND_FINALIZER = "foregroundDeletion"
#: On every CustomResourceDefinition, from its creation on, until its objects are gone.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
#: By these names without a domain (v1.IsStandardFinalizerName).
STANDARD_FINALIZERS = frozenset({"kubernetes", ORPHAN_FINALIZER, FOREGROUND_FINALIZER})

Item = TypeVar("Item")
Errors = list[FieldError]


class Path(str):
    """Where a field is: `Path("spec").child("a", "b").at(0).key("x.y")` is `spec.a.b[0][x.y]`."""

    __slots__ = ()

    def child(self, *parts: str) -> Path:
        return Path(".".join((self, *parts)) if self else ".".join(parts))

    def at(self, position: int) -> Path:
        check_time()  # loops over items name them, so this ends all of them
        return Path(f"{self}[{position}]")

    def key(self, key: str) -> Path:
        check_time()
        return Path(f"{self}[{key}]")


METADATA = Path("metadata")
SPEC = Path("spec")
STATUS = Path("status")


class NameRule(Protocol):
    """The messages of what is wrong with a name; `prefix` says that it is a generateName."""

    def __call__(self, text: str, *, prefix: bool = False) -> Sequence[str]: ...


def each(messages: Iterable[str], path: Path, value: object) -> Errors:
    """Each message as an invalid value of the field."""
    return [invalid(path, value, message) for message in messages]


def required_or(check: Callable[[str], Sequence[str]], value: str, path: Path) -> Errors:
    """Required when empty, else what `check` says."""
    return each(check(value), path, value) if value else [required(path)]


# Collections ---------------------------------------------------------------------------------------------------------


#: Errors after which the rest of a list is not looked at: nobody would be told of more.
ENOUGH_ERRORS = 1000


def validate_list(
    items: Sequence[Item], path: Path, validate_item: Callable[[Item, Path], Errors], *, maximum: int | None = None
) -> Errors:
    """Each item; a list that is too long is only said to be that (upstream: validateSlice)."""
    if maximum is not None and len(items) > maximum:
        return [too_many(path, len(items), maximum)]
    found = (error for position, item in enumerate(items) for error in validate_item(item, path.at(position)))
    return [*islice(found, ENOUGH_ERRORS)]


def validate_set(
    items: Sequence[Item],
    path: Path,
    validate_item: Callable[[Item, Path], Errors],
    *,
    key: Callable[[Item], Hashable],
    maximum: int | None = None,
    shown: Callable[[Item], object] | None = None,
) -> Errors:
    """As `validate_list`, and no two items with one key (upstream: validateSet). `shown`: the key as errors show it."""
    found = validate_list(items, path, validate_item, maximum=maximum)
    if maximum is not None and len(items) > maximum:
        return found
    seen: set[Hashable] = set()
    for position, item in enumerate(items):
        if key(item) in seen:
            found.append(duplicate(path.at(position), (shown or key)(item)))
        seen.add(key(item))
    return found


def validate_map(
    items: Mapping[str, Item],
    path: Path,
    *,
    validate_key: Callable[[str, Path], Errors],
    validate_item: Callable[[Item, Path], Errors],
    maximum: int | None = None,
    longest_key: int = DNS_LABEL_MAX,
) -> Errors:
    """Keys at the map's own path, items at theirs (upstream: validateMap). Longer keys are shortened in paths."""
    if maximum is not None and len(items) > maximum:
        return [too_many(path, len(items), maximum)]
    found: Errors = []
    for key, item in items.items():
        found += validate_key(key, path)
        found += validate_item(item, path.key(shortened(key, longest_key)))
    return found


def shortened(text: str, longest: int) -> str:
    """`text` with its middle left out, `longest` characters at most (upstream: truncateIfTooLong)."""
    if len(text) <= longest:
        return text
    remaining = longest - len("...")
    return f"{text[: (remaining + 1) // 2]}...{text[len(text) - remaining // 2 :]}"


# Metadata ------------------------------------------------------------------------------------------------------------


def validate_object_meta(
    metadata: ObjectMeta,
    *,
    namespaced: bool,
    name_rule: NameRule = check_object_name,
    path: Path = METADATA,
    any_finalizers: bool = False,
) -> Errors:
    """A new object's metadata, once its name is generated.

    any_finalizers: of a kind whose finalizers need no domain in Kubernetes; their authors are warned
    (`manciple.store.hooks.warn_of_finalizers`).
    """
    found: Errors = []
    if metadata.generate_name:
        messages = name_rule(metadata.generate_name, prefix=True)
        found += each(messages, path.child("generateName"), metadata.generate_name)
    if metadata.name:
        found += each(name_rule(metadata.name), path.child("name"), metadata.name)
    elif not metadata.generate_name:
        found.append(required(path.child("name"), "name or generateName is required"))
    found += _validate_namespace(metadata.namespace, namespaced, path)
    found += _validate_free_parts(metadata, path)
    return found if any_finalizers else found + _validate_domains(metadata.finalizers, (), path)


def _validate_namespace(namespace: str, namespaced: bool, path: Path) -> Errors:
    field = path.child("namespace")
    if namespaced:
        return required_or(check_dns_label, namespace, field)
    return [forbidden(field, "not allowed on this type")] if namespace else []


def _validate_free_parts(metadata: ObjectMeta, path: Path) -> Errors:
    """What may differ between two versions of an object."""
    found = (
        []
        if metadata.generation >= 0
        else [invalid(path.child("generation"), metadata.generation, "must be greater than or equal to 0")]
    )
    return [
        *found,
        *validate_labels(metadata.labels, path.child("labels")),
        *validate_annotations(metadata.annotations, path.child("annotations")),
        *validate_owner_references(metadata.owner_references, path.child("ownerReferences")),
        *validate_finalizers(metadata.finalizers, path.child("finalizers")),
    ]


def validate_labels(labels: Mapping[str, str], path: Path) -> Errors:
    found: Errors = []
    for key, value in labels.items():
        found += each(check_label_key(key), path, key)
        found += each(check_label_value(value), path, value)
    return found


def validate_annotations(annotations: Mapping[str, str], path: Path) -> Errors:
    """Keys are label keys in any case; all together are limited in size."""
    found = [error for key in annotations for error in each(check_label_key(key.lower()), path, key)]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_MAX:
        found.append(too_long(path, ANNOTATIONS_MAX))
    return found


def validate_owner_references(references: Sequence[OwnerReference], path: Path) -> Errors:
    found = [error for reference in references for error in _validate_owner(reference, path)]
    controllers = [reference for reference in references if reference.controller]
    for reference in controllers[1:]:
        first = f"{controllers[0].kind}/{controllers[0].name}"
        found.append(
            invalid(
                path,
                references,
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {first} and {reference.kind}/{reference.name}',
            )
        )
    return found


def _validate_owner(reference: OwnerReference, path: Path) -> Errors:
    is_group_version = reference.api_version and reference.api_version.count("/") <= 1
    parts = {
        "apiVersion": (is_group_version, "version must not be empty"),
        "kind": (reference.kind, "must not be empty"),
        "name": (reference.name, "must not be empty"),
        "uid": (reference.uid, "must not be empty"),
    }
    found = [invalid(path.child(name), "", message) for name, (value, message) in parts.items() if not value]
    if (reference.api_version, reference.kind) == ("v1", "Event"):
        found.append(invalid(path, reference, "/v1, Kind=Event is disallowed from being an owner"))
    return found


def validate_finalizers(finalizers: Sequence[str], path: Path) -> Errors:
    found = [error for name in finalizers for error in each(check_label_key(name), path, name)]
    if ORPHAN_FINALIZER in finalizers and FOREGROUND_FINALIZER in finalizers:
        message = f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"
        found.append(invalid(path, finalizers, message))
    return found


def unqualified_finalizers(new: Sequence[str], old: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Those that neither Kubernetes defines nor a domain qualifies, with their positions; those of before may stay."""
    known = STANDARD_FINALIZERS.union(old)  # an object may have tens of thousands
    for position, name in enumerate(new):
        if "/" not in name and name not in known:
            yield position, name


def _validate_domains(new: Sequence[str], old: Sequence[str], path: Path) -> Errors:
    message = "name is neither a standard finalizer name nor is it fully qualified"
    at = path.child("finalizers")
    return [invalid(at.at(position), name, message) for position, name in unqualified_finalizers(new, old)]


def validate_object_meta_update(
    new: ObjectMeta, old: ObjectMeta, *, path: Path = METADATA, any_finalizers: bool = False
) -> Errors:
    """What an update may not touch. Fields that the client left out count as unchanged: the store fills them in."""
    found: Errors = []
    if old.deletion_timestamp:
        found += _validate_no_new_finalizers(new.finalizers, old.finalizers, path.child("finalizers"))
    fixed = (
        ("name", new.name, old.name),
        ("namespace", new.namespace, old.namespace),
        ("uid", new.uid, old.uid),
        ("creationTimestamp", new.creation_timestamp, old.creation_timestamp),
        ("deletionTimestamp", new.deletion_timestamp, old.deletion_timestamp),
        ("deletionGracePeriodSeconds", new.deletion_grace_period_seconds, old.deletion_grace_period_seconds),
    )
    for name, now, before in fixed:
        if now and now != before:
            found.append(immutable(path.child(name), now))
    found += _validate_free_parts(new, path)
    return found if any_finalizers else found + _validate_domains(new.finalizers, old.finalizers, path)


def judged_as_new(validate: Callable[[Any], Sequence[FieldError]]) -> Callable[[Any, Any], Errors]:
    """The rule of updates of a kind in which all but the metadata is judged as in a new object."""
    return lambda new, old: [*validate_object_meta_update(new.metadata, old.metadata), *validate(new)]


def _validate_no_new_finalizers(new: Sequence[str], old: Sequence[str], path: Path) -> Errors:
    extra = sorted(set(new) - set(old))
    if not extra:
        return []
    listed = ", ".join(f'"{name}"' for name in extra)
    message = (
        f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    )
    return [forbidden(path, message)]


def validate_immutable(new: Value | str | float | None, old: Value | str | float | None, path: Path) -> Errors:
    return [] if new == old else [immutable(path, new)]


# Conditions -----------------------------------------------------------------------------------------------------------


CONDITION_STATUSES = ("False", "True", "Unknown")
#: bytes
REASON_MAX, MESSAGE_MAX = 1024, 32 * 1024

_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_RULE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'"
)


def validate_conditions(conditions: Sequence[Condition], path: Path) -> Errors:
    found = validate_list(conditions, path, _validate_condition)
    types = [condition.type for condition in conditions]
    return found + [
        duplicate(path.at(position).child("type"), one) for position, one in enumerate(types) if one in types[:position]
    ]


def _validate_condition(condition: Condition, path: Path) -> Errors:
    found = each(check_label_key(condition.type), path.child("type"), condition.type)
    if condition.status not in CONDITION_STATUSES:
        found.append(not_supported(path.child("status"), condition.status, CONDITION_STATUSES))
    if condition.observed_generation < 0:
        message = "must be greater than or equal to zero"
        found.append(invalid(path.child("observedGeneration"), condition.observed_generation, message))
    if not condition.last_transition_time:
        found.append(required(path.child("lastTransitionTime")))
    found += _validate_reason(condition.reason, path.child("reason"))
    if len(condition.message.encode()) > MESSAGE_MAX:
        found.append(too_long(path.child("message"), MESSAGE_MAX))
    return found


def _validate_reason(reason: str, path: Path) -> Errors:
    if not reason:
        return [required(path)]
    found: Errors = []
    if not re.fullmatch(_REASON, reason):
        message = regex_message(
            _REASON_RULE, _REASON, "my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"
        )
        found.append(invalid(path, reason, message))
    if len(reason.encode()) > REASON_MAX:
        found.append(too_long(path, REASON_MAX))
    return found
