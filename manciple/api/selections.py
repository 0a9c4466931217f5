"""PURE: what one watch sees of an event of the log.

A watch looks at a selection of objects (namespace, labels, fields). An event may bring an object into the selection,
change it there, or take it out; whoever watches sees an ADDED, a MODIFIED or a DELETED accordingly, whatever the log
calls it.
"""

from __future__ import annotations

from dataclasses import dataclass

from manciple.store.records import EventRecord, EventType
from manciple.wire.selectors import FieldSelector, LabelSelector

ANY_LABELS = LabelSelector()
ANY_FIELDS = FieldSelector()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Objects of one resource. namespace "" means all of them."""

    resource: str
    namespace: str = ""
    labels: LabelSelector = ANY_LABELS
    fields: FieldSelector = ANY_FIELDS

    @property
    def everything(self) -> bool:
        """Whether labels and fields need not be looked at."""
        return self.labels.empty and self.fields.empty

    def sees(self, record: EventRecord) -> EventType | None:
        """How `record` appears in this selection; None where it does not."""
        if self.namespace and record.namespace != self.namespace:
            return None
        if self.everything:
            return record.type
        before = self._held_before(record)
        after = record.type != "DELETED" and self._holds(record.labels, record.fields)
        if before:
            return "MODIFIED" if after else "DELETED"
        return "ADDED" if after else None

    def _held_before(self, record: EventRecord) -> bool:
        if record.previous_labels is None or record.previous_fields is None:
            return False
        return self._holds(record.previous_labels, record.previous_fields)

    def _holds(self, labels: dict[str, str], fields: dict[str, str]) -> bool:
        return self.labels.matches(labels) and self.fields.matches(fields)
