"""What every kind checks alike: paths to fields, metadata, and the shapes of lists, sets and maps.

Rules return a list of `FieldError`s, all of them, each with its path; callers add the lists up. Sources:
apimachinery/pkg/api/validation/objectmeta.go and the collection rules of pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from manciple.wire import names
from manciple.wire.base import ObjectMeta, OwnerReference, Value
from manciple.wire.errors import FieldError, duplicate, forbidden, immutable, invalid, required, too_long, too_many

#: All annotations of an object together, keys and values, in bytes.
ANNOTATIONS_MAX = 256 * 1024

ORPHAN_FINALIZER = "orphan"
FOREGROUND_FINALIZER = "foregroundDeletion"

Item = TypeVar("Item")
Errors = list[FieldError]


class Path(str):
    """Where a field is: `Path("spec").child("a", "b").at(0).key("x.y")` is `spec.a.b[0][x.y]`."""

    __slots__ = ()

    def child(self, *parts: str) -> Path:
        return Path(".".join((self, *parts)) if self else ".".join(parts))

    def at(self, position: int) -> Path:
        return Path(f"{self}[{position}]")

    def key(self, key: str) -> Path:
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


def validate_list(
    items: Sequence[Item], path: Path, validate_item: Callable[[Item, Path], Errors], *, maximum: int | None = None
) -> Errors:
    """Each item; a list that is too long is only said to be that (upstream: validateSlice)."""
    if maximum is not None and len(items) > maximum:
        return [too_many(path, len(items), maximum)]
    return [error for position, item in enumerate(items) for error in validate_item(item, path.at(position))]


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
    longest_key: int = names.DNS_LABEL_MAX,
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
    metadata: ObjectMeta, *, namespaced: bool, name_rule: NameRule = names.check_object_name, path: Path = METADATA
) -> Errors:
    """A new object's metadata, once its name is generated."""
    found: Errors = []
    if metadata.generate_name:
        messages = name_rule(metadata.generate_name, prefix=True)
        found += each(messages, path.child("generateName"), metadata.generate_name)
    if metadata.name:
        found += each(name_rule(metadata.name), path.child("name"), metadata.name)
    elif not metadata.generate_name:
        found.append(required(path.child("name"), "name or generateName is required"))
    return found + _validate_namespace(metadata.namespace, namespaced, path) + _validate_free_parts(metadata, path)


def _validate_namespace(namespace: str, namespaced: bool, path: Path) -> Errors:
    field = path.child("namespace")
    if namespaced:
        return required_or(names.check_dns_label, namespace, field)
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


def validate_template_meta(metadata: ObjectMeta, path: Path) -> Errors:
    """The metadata of something that a template will make: labels, annotations, finalizers and owners only."""
    return _validate_free_parts(metadata, path)


def validate_labels(labels: Mapping[str, str], path: Path) -> Errors:
    found: Errors = []
    for key, value in labels.items():
        found += each(names.check_label_key(key), path, key)
        found += each(names.check_label_value(value), path.key(key), value)
    return found


def validate_annotations(annotations: Mapping[str, str], path: Path) -> Errors:
    """Keys are label keys in any case; all together are limited in size."""
    found = [error for key in annotations for error in each(names.check_label_key(key.lower()), path, key)]
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
    parts = {
        "apiVersion": (reference.api_version, "version must not be empty"),
        "kind": (reference.kind, "must not be empty"),
        "name": (reference.name, "must not be empty"),
        "uid": (reference.uid, "must not be empty"),
    }
    found = [invalid(path.child(name), "", message) for name, (value, message) in parts.items() if not value]
    if (reference.api_version, reference.kind) == ("v1", "Event"):
        found.append(invalid(path, reference, "/v1, Kind=Event is disallowed from being an owner"))
    return found


def validate_finalizers(finalizers: Sequence[str], path: Path) -> Errors:
    found = [error for name in finalizers for error in each(names.check_label_key(name), path, name)]
    if ORPHAN_FINALIZER in finalizers and FOREGROUND_FINALIZER in finalizers:
        message = f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"
        found.append(invalid(path, finalizers, message))
    return found


def validate_object_meta_update(new: ObjectMeta, old: ObjectMeta, *, path: Path = METADATA) -> Errors:
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
    return found + _validate_free_parts(new, path)


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
