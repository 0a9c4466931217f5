"""What get and list read, and how old an answer may be.

Every read is of the newest state, so it is "not older than" any revision that exists. A revision that does not exist
yet is answered with a Timeout, as upstream does when its cache does not catch up; an exact past revision is answered
where nothing of the kind has changed since, and is Expired otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from manciple.api.requests import ListOptions
from manciple.store import objects, tail
from manciple.store.records import Page, Stored
from manciple.wire.errors import ApiError, Expired, NotFound
from manciple.wire.registry import Kind


class TooLargeRevision(ApiError):
    """504: the client has seen a revision that this store has not reached."""

    code, reason = 504, "Timeout"

    @classmethod
    def of(cls, wanted: int, current: int) -> TooLargeRevision:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        return cls(
            f"Too large resource version: {wanted}, current: {current}",
            details={"causes": [cause], "retryAfterSeconds": 1},
        )


def get(kind: Kind, *, namespace: str, name: str, resource_version: str = "") -> Stored:
    """Raises: NotFound, TooLargeRevision."""
    if resource_version.isdecimal() and int(resource_version):
        _check_reached(int(resource_version), tail.latest_revision())
    stored = objects.get(kind, namespace, name)
    if stored is None:
        raise NotFound.of(kind.resource, name)
    return stored


def list_page(kind: Kind, *, namespace: str, options: ListOptions) -> Page:
    """Raises: BadRequest for a strange continue token; Expired, TooLargeRevision."""
    page = objects.list(
        kind,
        namespace=namespace,
        labels=None if options.labels.empty else options.labels,
        fields=None if options.fields.empty else options.fields,
        limit=options.limit,
        continue_token=options.continue_token,
    )
    wanted = int(options.resource_version or 0)
    if not wanted or options.continue_token:
        return page
    _check_reached(wanted, page.revision)
    return _at_exactly(kind, page, wanted) if options.resource_version_match == "Exact" else page


def _check_reached(wanted: int, current: int) -> None:
    if wanted > current:
        raise TooLargeRevision.of(wanted, current)


def _at_exactly(kind: Kind, page: Page, wanted: int) -> Page:
    changes = tail.read_after(wanted, resources=[kind.resource], limit=1)
    if changes and changes[0].revision <= page.revision:
        raise Expired(f"The resourceVersion for the provided list is too old: {wanted}.")
    return replace(page, revision=wanted)
