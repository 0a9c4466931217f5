"""metav1.Condition lists: what is wrong with them. PURE.

Source: apimachinery/pkg/apis/meta/v1/validation/validation.go (ValidateConditions).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from manciple.wire.base import Condition
from manciple.wire.errors import duplicate, invalid, not_supported, required, too_long
from manciple.wire.validation import Errors, Path, check_label_key, each, regex_message, validate_list

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
