"""The Django app `claims`."""

from django.apps import AppConfig

from claims.kinds.registration import KINDS
from manciple.store.event_log import LOG
from manciple.wire.base import shared_texts
from manciple.wire.registry import registry


class ClaimsConfig(AppConfig):
    name = "claims"
    label = "claims"
    controllers = ("claims.controllers",)

    def ready(self) -> None:
        # Models can be imported from here on only.
        from claims import admission, drawn_counters, projectors  # noqa: PLC0415
        from claims.access import (  # noqa: PLC0415
            event_authors,
            node_rights,
            status_rights,
        )
        from claims.evictions import EVICTION  # noqa: PLC0415
        from claims.live import ClaimTopics, claim_topics, pod_topics  # noqa: PLC0415
        from claims.pod_logs import POD_LOG  # noqa: PLC0415
        from claims.pod_streams import ATTACH, EXEC, PORT_FORWARD, connect_to_port  # noqa: PLC0415
        from manciple.access import webhook_client  # noqa: PLC0415
        from manciple.api import subresources  # noqa: PLC0415
        from manciple.live import topics  # noqa: PLC0415

        for kind in KINDS:
            registry.register(kind)
        projectors.register()
        LOG.share("resourceclaims.resource.k8s.io", shared_texts)
        admission.register()
        drawn_counters.register()
        admission.register_completions()
        node_rights.register()
        event_authors.register()
        status_rights.register()
        admission.register_pod_security()
        subresources.register("pods", EVICTION)
        for stream in (POD_LOG, EXEC, ATTACH, PORT_FORWARD):
            subresources.register("pods", stream)
        webhook_client.reach_pods_by(connect_to_port)
        claims = ClaimTopics()
        topics.register("resourceclaims.resource.k8s.io", claims)
        topics.register("pods", claims.of_pod)
        topics.register("resourceclaims.resource.k8s.io", claim_topics)
        topics.register("pods", pod_topics)
