"""The kinds of `manciple.access`, as the API server serves them."""

from __future__ import annotations

from manciple.access.kinds import roles
from manciple.access.kinds.certificate_rules import CERTIFICATE_SIGNING_REQUEST
from manciple.access.kinds.secrets import CONFIG_MAP, SECRET
from manciple.access.kinds.service_accounts import SERVICE_ACCOUNT
from manciple.wire.registry import Kind

KINDS: tuple[Kind, ...] = (CONFIG_MAP, SECRET, SERVICE_ACCOUNT, *roles.KINDS, CERTIFICATE_SIGNING_REQUEST)
