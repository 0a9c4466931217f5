"""The Django app `inventory`."""

from django.apps import AppConfig

from inventory.kinds.registration import KINDS
from inventory.kinds.shared_values import shared
from manciple.store.follower import LOG
from manciple.wire.base import shared_texts
from manciple.wire.registry import registry


class InventoryConfig(AppConfig):
    name = "inventory"
    label = "inventory"

    def ready(self) -> None:
        # Models can be imported from here on only.
        from inventory import live, projectors  # noqa: PLC0415
        from manciple.live import topics  # noqa: PLC0415

        for kind in KINDS:
            registry.register(kind)
        projectors.register()
        LOG.share("resourceslices.resource.k8s.io", shared)
        LOG.share("nodes", shared_texts)
        topics.register("resourceslices.resource.k8s.io", live.slice_topics)
        topics.register("devicetaintrules.resource.k8s.io", live.taint_rule_topics)
        topics.register("deviceclasses.resource.k8s.io", live.class_topics)
        topics.register("nodes", live.NodeTopics())
        topics.register("pods", live.node_pod_topics)
        topics.register("namespaces", live.namespace_topics)
