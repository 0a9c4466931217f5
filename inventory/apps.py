"""The Django app `inventory`."""

from collections.abc import Iterator

from django.apps import AppConfig
from django.conf import settings
from prometheus_client.core import Metric

from inventory.kinds import gates
from inventory.kinds.registration import KINDS
from inventory.kinds.shared_values import shared
from manciple.store.event_log import LOG
from manciple.telemetry import metrics
from manciple.wire.base import shared_texts
from manciple.wire.registry import registry


class InventoryConfig(AppConfig):
    name = "inventory"
    label = "inventory"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from inventory import live, meters, projectors  # noqa: PLC0415
        from manciple.api import subresources  # noqa: PLC0415
        from manciple.live import topics  # noqa: PLC0415

        gates.use(settings.FEATURE_GATES)
        metrics.OnDemand(_feature_gates)
        for kind in KINDS:
            registry.register(kind)
        registry.restrict(gates.serves)
        projectors.register()
        subresources.register("nodes", meters.READINGS)
        LOG.share("resourceslices.resource.k8s.io", shared)
        LOG.share("nodes", shared_texts)
        topics.register("resourceslices.resource.k8s.io", live.slice_topics)
        topics.register("devicetaintrules.resource.k8s.io", live.taint_rule_topics)
        topics.register("deviceclasses.resource.k8s.io", live.class_topics)
        topics.register("nodes", live.NodeTopics())
        topics.register("pods", live.node_pod_topics)
        topics.register("namespaces", live.namespace_topics)


def _feature_gates() -> Iterator[Metric]:
    """Upstream's component-base/metrics/prometheus/feature: stage "" is GA."""
    yield metrics.gauges(
        "kubernetes_feature_enabled",
        "Feature gates: 1 is on.",
        ("name", "stage"),
        (((name, gate.stage.replace("GA", "")), gates.enabled(name)) for name, gate in gates.KNOWN.items()),
    )
