"""What the person of a notification may be told: no more than their pages would show them now."""

from __future__ import annotations

from manciple.notifications.models import Happening, Notification
from manciple.notifications.recording import TEST
from manciple.pages.people import person_of_user

#: What one must be allowed to list to hear of devices that no claim of one's own holds.
DEVICES = "resourceslices.resource.k8s.io"


def may_tell(notification: Notification) -> bool:
    person = person_of_user(notification.person)
    if notification.happening == TEST:  # about nothing but the person's own address
        return True
    if notification.happening == Happening.DEVICE_FAILS and not notification.namespaces:
        return person.may("list", DEVICES)
    return bool(notification.namespaces) and all(map(person.sees, notification.namespaces))
