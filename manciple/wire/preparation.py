"""What preparing a write has in common among kinds. Source: apimachinery/pkg/apis/meta/v1/meta.go."""

from __future__ import annotations

from msgspec.structs import replace

from manciple.wire.base import ObjectMeta


def status_metadata(new: ObjectMeta, old: ObjectMeta) -> ObjectMeta:
    """The metadata after a write of a status: all as it was, but the revision and uid that the writer expects stay
    those of the request, so that the store can refuse a stale one (upstream: ResetObjectMetaForStatus).
    """
    return replace(
        old,
        uid=new.uid or old.uid,
        resource_version=new.resource_version,
        managed_fields=new.managed_fields,
    )
