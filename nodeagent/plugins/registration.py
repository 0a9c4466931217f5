"""Registers one plugin: asks the socket who is there, decides, and tells it the decision.

Sources: kubernetes pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go,
pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go (which services a driver must list).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from manciple.wire.names import DRIVER_NAME_MAX, check_driver_name
from nodeagent.plugins.channels import CallFailed, Channel
from nodeagent.plugins.messages import (
    DRA_PLUGIN,
    DRA_SERVICES,
    GET_INFO,
    HEALTH_SERVICES,
    NOTIFY,
    DraService,
    HealthService,
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
)

log = logging.getLogger(__name__)

#: How long a plugin may take to say who it is, and to hear what was decided.
INFO_SECONDS: Final = 5.0
NOTIFY_SECONDS: Final = 5.0

Admission = TypeVar("Admission")


class Refused(Exception):
    """A plugin cannot be registered as it is; the reason is told to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A plugin that can be worked with. name: of its driver. endpoint: the path of the socket of its services.
    health: the services to ask for the health of its devices, newest first."""

    name: str
    endpoint: str
    service: DraService
    health: tuple[HealthService, ...]


def register(socket: Path, admit: Callable[[Plugin], Admission]) -> Admission:
    """Registers whoever listens at `socket`. admit: takes the plugin in, or raises Refused.

    Raises: Refused, after the plugin was told; CallFailed when it cannot be asked.
    """
    channel = Channel(str(socket))
    try:
        info = channel.call(GET_INFO, InfoRequest(), seconds=INFO_SECONDS)
        try:
            admission = admit(accept(info, socket))
        except Refused as refusal:
            _notify(channel, RegistrationStatus(plugin_registered=False, error=str(refusal)))
            raise
        _notify(channel, RegistrationStatus(plugin_registered=True))
        return admission
    finally:
        channel.close()


def accept(info: PluginInfo, socket: Path) -> Plugin:
    """Raises: Refused saying what the plugin has to change."""
    if info.type != DRA_PLUGIN:
        raise Refused(f"plugins of type {info.type!r} are not handled here, only {DRA_PLUGIN}")
    if problems := _name_problems(info.name):
        raise Refused(f"driver name {info.name!r}: {'; '.join(problems)}")
    services = [service for service in DRA_SERVICES if service.name in info.supported_versions]
    if not services:
        known = ", ".join(service.name for service in DRA_SERVICES)
        given = ", ".join(info.supported_versions) or "none"
        raise Refused(f"driver {info.name}: none of its services is supported ({given}); supported are {known}")
    listed = tuple(service for service in HEALTH_SERVICES if service.name in info.supported_versions)
    return Plugin(
        name=info.name,
        endpoint=info.endpoint or str(socket),
        service=services[0],
        # Drivers of Kubernetes 1.34 and 1.35 serve it without listing it.
        health=listed or HEALTH_SERVICES,
    )


def _name_problems(name: str) -> Sequence[str]:
    if len(name.encode()) > DRIVER_NAME_MAX:
        return [f"must be no more than {DRIVER_NAME_MAX} bytes"]
    return list(check_driver_name(name))


def _notify(channel: Channel, status: RegistrationStatus) -> None:
    """What was decided stands also when the plugin does not hear of it."""
    try:
        channel.call(NOTIFY, status, seconds=NOTIFY_SECONDS)
    except CallFailed as failure:
        log.warning("plugin at %s was not told how its registration went: %s", channel.endpoint, failure)
