"""What somebody does to accounts and credentials by `manage.py`: on this machine, past the API and the pages.

Whoever may run it may do everything. They are `manage.py` to the trail, and it says as whom they ran it.
"""

from __future__ import annotations

import getpass
from datetime import UTC, datetime

from manciple.audit import trail
from manciple.audit.budgets import SESSIONS
from manciple.audit.happenings import Happened
from manciple.audit.sign_ins import NOTIFICATION_ADDRESSES, NOTIFICATION_RULES, PEOPLE, SAVED_VIEWS, TOKENS
from manciple.store.records import Origin
from manciple.wire.base import new_uid
from manciple.wire.identity import Identity

#: Who runs commands, and made the tokens that they issue.
OPERATOR = "manage.py"
#: What no log has and no API serves, beside people and their tokens (`manciple.audit.sign_ins`).
CERTIFICATES, NODE_TOKENS = "certificates.manciple.dev", "nodetokens.manciple.dev"
SIGNING_KEYS, LOCKOUTS = "signingkeys.manciple.dev", "lockouts.manciple.dev"
#: All that only the trail knows.
UNSERVED = (
    *(SESSIONS, PEOPLE, TOKENS, CERTIFICATES, NODE_TOKENS, SIGNING_KEYS, LOCKOUTS),
    *(NOTIFICATION_RULES, NOTIFICATION_ADDRESSES, SAVED_VIEWS),
)


def note_command(command: str, verb: str, resource: str, name: str) -> None:
    """It was done, and is in the trail when this returns. command: "token revoke"; verb: create, update or delete.

    name: whose; never a secret. Raises: django.db.Error.
    """
    origin = Origin(
        audit_id=new_uid(),
        received=datetime.now(UTC),
        agent=f"manage.py {command}, run by {_account()}",
        verb=verb,
        identity=Identity(OPERATOR),
    )
    trail.write(Happened(origin=origin, code=201 if verb == "create" else 200, resource=resource, name=name))


def _account() -> str:
    """Of the operating system."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number that has no name here
        return "an account without a name"
