"""What the mirror's own account must be allowed to do, as the cluster says it."""

from __future__ import annotations

from typing import Final

import msgspec

from manciple.mirror.client import Remote
from manciple.mirror.own_rights import PATH, PATIENCE, Reviewed
from manciple.refusals import StartRefused

#: With `patch`, in all namespaces.
NEEDED: Final = (("pods", ""), ("pods", "status"))


def demand(remote: Remote, context: str) -> None:
    """Raises: StartRefused where a right is missing; RemoteFailure where the cluster does not say."""
    missing = ["/".join(filter(None, one)) for one in NEEDED if not _may_patch(remote, *one)]
    if missing:
        raise StartRefused(
            f"--steer needs the right to patch {' and '.join(missing)} in every namespace of {context}, which its "
            "account does not have: see deploy/kubernetes/mirror-steer, or start without --steer"
        )


def _may_patch(remote: Remote, resource: str, subresource: str) -> bool:
    attributes = {"verb": "patch", "group": "", "resource": resource, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = remote.review(PATH, msgspec.json.encode(review), timeout=PATIENCE)
    return msgspec.json.decode(answer, type=Reviewed).status.allowed
