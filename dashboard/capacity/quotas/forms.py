"""Other limits for a quota, as they are typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from msgspec import structs

from claims.kinds.quotas import RESOURCE_QUOTA, ResourceQuota, ResourceQuotaSpec
from claims.kinds.resource_usage import DEVICES
from dashboard.capacity.quotas.reading import QuotaLimit, limits_of
from dashboard.kit.forms import PageForm, code_input
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError

#: How the inputs of limits are called: with the limit's key behind it.
_LIMIT = "hard."
_REQUIRED_VALUE = "Enter an amount, for example `8`."


class NewQuotaForm(PageForm):
    """A quota for devices of one class; whatever else it is to limit is added on its page."""

    ids = "new-quota-%s"
    namespace = forms.CharField(widget=code_input("team-a", list="quota-namespaces", required=True))
    name = forms.CharField(widget=code_input("gpus", required=True))
    device_class = forms.CharField(widget=code_input("gpu-hopper", list="quota-classes", required=True))
    devices = forms.CharField(widget=code_input("8", required=True, inputmode="numeric"))

    @classmethod
    def in_namespace(cls, namespace: str) -> NewQuotaForm:
        """Blank but for the namespace."""
        form = cls()
        form.initial = {"namespace": namespace}
        return form

    def quota(self) -> ResourceQuota:
        """What the form asks for; of a valid form."""
        asked = self.cleaned_data
        meta = ObjectMeta(namespace=asked["namespace"], name=asked["name"])
        hard = {f"{asked['device_class']}{DEVICES}": asked["devices"]}
        spec = ResourceQuotaSpec(hard=hard)
        return ResourceQuota(api_version=RESOURCE_QUOTA.api_version, kind="ResourceQuota", metadata=meta, spec=spec)

    def complain(self, refusal: ApiError) -> None:
        """What the API says, at the field that it is about."""
        for cause in (refusal.details or {}).get("causes") or [{"message": refusal.message}]:
            field = str(cause.get("field", ""))
            place = "devices" if "hard" in field else field.rpartition(".")[2]
            self.add_error(place if place in self.fields else "name", str(cause.get("message", "")))


class LimitsForm(PageForm):
    """An input for each limit, empty for none, and one for a further limit."""

    ids = "quota-%s"
    key = forms.CharField(required=False, max_length=400, widget=code_input("gpu.deviceclass.resource.k8s.io/devices"))
    value = forms.CharField(required=False, max_length=60, widget=code_input("8"))

    def __init__(self, quota: ResourceQuota, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self._quota, self._limits = quota, limits_of(quota)
        for limit in self._limits:
            self.fields[f"{_LIMIT}{limit.key}"] = forms.CharField(
                required=False, max_length=60, initial=quota.spec.hard[limit.key], widget=code_input("no limit")
            )

    @property
    def limits(self) -> list[tuple[QuotaLimit, BoundField]]:
        return [(limit, self[f"{_LIMIT}{limit.key}"]) for limit in self._limits]

    @property
    def typed(self) -> list[tuple[str, str]]:
        """(name, value) of all inputs, to be sent again."""
        return [(name, self.data.get(name, "")) for name in self.fields]

    @property
    def hard(self) -> dict[str, str]:
        """The limits that are wanted; of a valid form."""
        found = {limit.key: self.cleaned_data.get(f"{_LIMIT}{limit.key}", "") for limit in self._limits}
        if key := self.cleaned_data.get("key"):
            found[key] = self.cleaned_data.get("value", "")
        return {key: text for key, text in found.items() if text}

    def clean(self) -> None:
        if self.cleaned_data.get("key") and not self.cleaned_data.get("value"):
            self.add_error("value", _REQUIRED_VALUE)
        if self.cleaned_data.get("value") and not self.cleaned_data.get("key"):
            self.add_error("key", "Enter what is limited, for example `pods`.")
        for wrong in RESOURCE_QUOTA.validate_update(self.wanted(self._quota), self._quota):
            self.blame(wrong.field, wrong.body)

    def wanted(self, quota: ResourceQuota) -> ResourceQuota:
        """`quota` with the limits of the form."""
        return structs.replace(quota, spec=structs.replace(quota.spec, hard=self.hard))

    def blame(self, path: str, message: str) -> None:
        """Say what the API has against the field at `path` ("spec.hard[pods]") where it was typed."""
        key = path.removeprefix("spec.hard[").removesuffix("]")
        if f"{_LIMIT}{key}" in self.fields:
            self.add_error(f"{_LIMIT}{key}", message)
        else:
            self.add_error("key" if key == self.cleaned_data.get("key") else None, message)

    def refuse(self, error: ApiError) -> None:
        causes = (error.details or {}).get("causes") or []
        for cause in causes:
            self.blame(str(cause.get("field", "")), str(cause.get("message", "")))
        if not causes:
            self.add_error(None, error.message)
