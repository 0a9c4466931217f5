"""Puts `explain` below pods and claims in the API."""

from __future__ import annotations

from manciple.api import subresources
from scheduling.explanations import current
from scheduling.explanations.documents import GROUP, KIND, VERSION
from scheduling.resources import CLAIMS, PODS


def register() -> None:
    for resource, answer in ((PODS, current.pod_document), (CLAIMS, current.claim_document)):
        computed = subresources.Computed(name="explain", group=GROUP, version=VERSION, kind=KIND, answer=answer)
        subresources.register(resource, computed)
