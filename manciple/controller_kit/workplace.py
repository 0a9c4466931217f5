"""What those who work on claims and contexts have in common: the driver, timed; the API, remembered; people, told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from claims.classic import kinds as v1alpha2
from claims.kinds.pods import Pod
from manciple.controller_kit.cache import KnownObjects
from manciple.controller_kit.driver import ControlledClaim, ControllerDriver
from manciple.controller_kit.forms import FORMS, ClaimForm, ParametersWrong, form_of
from manciple.controller_kit.metrics import ControllerMetrics
from manciple.wire.base import ObjectReference
from nodeagent.api.client import PODS, ApiResource, Client
from nodeagent.api.events import EventRecorder
from nodeagent.failures import ApiFailure


class Next(Enum):
    """When a piece of work is looked at again: when something happens; soon, as something stood in the way; or in
    `RECHECK_SECONDS`, because what it said of nodes may not hold by then."""

    ON_CHANGE = auto()
    SOON = auto()
    PERIODICALLY = auto()


class DriverFailed(Exception):
    """The driver raised, or could not do what it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """reserve: whether a claim is reserved for the pod for which it is allocated, with the allocation. given_up: to
    be called when some claim was.

    claims, classes: by the version of their form.
    """

    driver: ControllerDriver
    client: Client
    claims: Mapping[str, KnownObjects[Any]]
    classes: Mapping[str, KnownObjects[Any]]
    contexts: KnownObjects[v1alpha2.PodSchedulingContext]
    context_resource: ApiResource[v1alpha2.PodSchedulingContext]
    events: EventRecorder
    metrics: ControllerMetrics
    reserve: bool
    given_up: Callable[[], None]

    @property
    def finalizer(self) -> str:
        """By which the API server knows that a claim must not go before the driver took back what it gave."""
        return f"{self.driver.name}/deletion-protection"

    @property
    def forms(self) -> tuple[ClaimForm, ...]:
        return tuple(FORMS[version] for version in self.claims)

    def classes_of(self, form: ClaimForm) -> dict[str, Any]:
        return {name: one for (_, name), one in self.classes[form.version].all().items()}

    def update(self, claim: ControlledClaim, *, status: bool = False) -> ControlledClaim:
        """Raises: ApiFailure."""
        form = form_of(claim)
        updated: ControlledClaim = self.client.update(form.claims, claim, subresource="status" if status else "")
        self.claims[form.version].put(updated)
        return updated

    def pod(self, namespace: str, name: str) -> Pod | None:
        """As it is now; None where it is gone. Raises: ApiFailure."""
        try:
            return self.client.get(PODS, name, namespace=namespace)
        except ApiFailure as failure:
            if failure.not_found:
                return None
            raise

    @contextmanager
    def asking(self, method: str) -> Iterator[None]:
        """Times a call of the driver. Raises: DriverFailed for whatever the driver raises."""
        started, failed = time.perf_counter(), True
        try:
            yield
            failed = False
        except Exception as error:  # whatever a driver raises, the controller goes on
            raise DriverFailed(str(error) or type(error).__name__) from error
        finally:
            self.metrics.driver_called(method, time.perf_counter() - started, failed=failed)

    def warn(self, about: Any, resource: ApiResource[Any], message: str) -> None:
        """Tell whoever looks at the object that something of it failed."""
        meta = about.metadata
        self.events.warn_about(
            ObjectReference(
                kind=resource.kind,
                api_version=resource.api_version,
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                resource_version=meta.resource_version,
            ),
            "Failed",
            message,
        )

    def warn_class(self, error: ParametersWrong) -> None:
        """Tell the owner of the class what is wrong with its parameters, where it is those."""
        if error.of_class is not None:
            self.warn(error.of_class, FORMS["v1alpha2"].classes, str(error))

    def warn_claim(self, claim: ControlledClaim, message: str) -> None:
        self.warn(claim, form_of(claim).claims, message)
