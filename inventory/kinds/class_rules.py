"""Rules of DeviceClass. Source: pkg/apis/resource/validation/validation.go (ValidateDeviceClass) of Kubernetes 1.36."""

from __future__ import annotations

from inventory.kinds.classes import DeviceClass, DeviceClassConfiguration, DeviceClassSpec
from inventory.kinds.device_rules import CONFIGURATIONS_MAX, validate_configuration, validate_selectors
from manciple.wire import names
from manciple.wire.errors import FieldError, invalid
from manciple.wire.validation import (
    SPEC,
    Path,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)

Errors = list[FieldError]


def validate_class(device_class: DeviceClass) -> Errors:
    return validate_object_meta(device_class.metadata, namespaced=False) + _validate_spec(device_class.spec, None)


def validate_class_update(new: DeviceClass, old: DeviceClass) -> Errors:
    """Selectors and configuration that did not change count as stored: they are not compiled or measured again."""
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec, old.spec)


def _validate_spec(spec: DeviceClassSpec, old: DeviceClassSpec | None) -> Errors:
    kept_config = old is not None and old.config == spec.config

    def validate_config(configuration: DeviceClassConfiguration, path: Path) -> Errors:
        return validate_configuration(configuration, path, stored=kept_config)

    kept_selectors = old is not None and old.selectors == spec.selectors
    found = validate_selectors(spec.selectors, SPEC.child("selectors"), stored=kept_selectors)
    found += validate_list(spec.config, SPEC.child("config"), validate_config, maximum=CONFIGURATIONS_MAX)
    name = spec.extended_resource_name
    if name is not None and not names.is_extended_resource_name(name):
        found.append(invalid(SPEC.child("extendedResourceName"), name, "must be a valid extended resource name"))
    return found
