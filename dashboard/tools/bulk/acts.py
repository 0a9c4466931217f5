"""What can be done with many rows of a list at once: the buttons under it. `dashboard.tools.bulk.views` does it."""

from __future__ import annotations

from dashboard.kit.lists import BulkAct
from manciple.wire.resources import NODES


def delete_act(resource: str) -> tuple[BulkAct, ...]:
    return (BulkAct("Delete…", f"/bulk/{resource}/delete", destroys=True),)


NODE_ACTS = (
    BulkAct("Cordon…", f"/bulk/{NODES}/cordon"),
    BulkAct("Uncordon…", f"/bulk/{NODES}/uncordon"),
    BulkAct("Drain…", f"/bulk/{NODES}/drain", destroys=True),
)
