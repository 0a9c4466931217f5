"""The kinds of `manciple.admission`, as the API server serves them."""

from __future__ import annotations

from manciple.admission.kinds.bindings import BINDING
from manciple.admission.kinds.mutating_policies import MUTATING_BINDING, MUTATING_POLICY
from manciple.admission.kinds.policies import POLICY
from manciple.admission.kinds.webhooks import MUTATING_WEBHOOKS, WEBHOOKS
from manciple.wire.registry import Kind

KINDS: tuple[Kind, ...] = (POLICY, BINDING, WEBHOOKS, MUTATING_WEBHOOKS, MUTATING_POLICY, MUTATING_BINDING)
