"""The part of a pod that the scheduler reads. PURE.

A worker keeps every pending pod. A megabyte of arguments, environment, probes or volumes takes some ten megabytes once
it is decoded, so these are left out. Writers read the stored pod first.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from msgspec import structs

from claims.kinds.containers import Container
from claims.kinds.pods import Pod


def outline(pod: Pod) -> Pod:
    """`pod` without what no decision depends on."""
    meta, spec = pod.metadata, pod.spec
    volumes: Iterable[Any] = spec.volumes
    unsupported = (one for one in volumes if one.persistentVolumeClaim is not None or one.ephemeral is not None)
    return structs.replace(
        pod,
        metadata=structs.replace(
            meta,
            managed_fields=(),
            finalizers=(),
            owner_references=tuple(one for one in meta.owner_references if one.controller),
        ),
        spec=structs.replace(
            spec,
            containers=tuple(map(_container, spec.containers)),
            init_containers=tuple(map(_container, spec.init_containers)),
            ephemeral_containers=(),
            volumes=tuple(islice(unsupported, 1)),  # one is enough to keep the pod from its node
            image_pull_secrets=(),
            host_aliases=(),
            dns_config=None,
            readiness_gates=(),
            eviction_responders=(),
            scheduling_gates=spec.scheduling_gates[:1],
        ),
    )


def _container(full: Container) -> Container:
    return Container(
        name=full.name,
        ports=tuple(port for port in full.ports if port.host_port),
        resources=full.resources,
        restart_policy=full.restart_policy,
        pod_resources=full.pod_resources,
    )
