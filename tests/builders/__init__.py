"""Builders of API values for tests: keyword functions whose defaults validate, so that a test says only what matters.

    make_claim("training", requests=[make_request(count=2)], namespace="team-a")
    make_pod("web", claims={"gpu": "training"})          # uses an existing claim
    make_pod("web", templates={"gpu": "one-gpu"})        # a claim is made for it

They return the typed values as a client would send them; `stored` gives one what the server fills in. Attributes are
written as Python values: bool, int and str become bool, int and string, `Version("1.2.3")` a version, lists the lists.
"""

from tests.builders.claims import (
    make_allocation,
    make_alternative,
    make_alternatives,
    make_budget,
    make_claim,
    make_claim_config,
    make_claim_spec,
    make_constraint,
    make_consumer,
    make_container,
    make_pod,
    make_priority,
    make_quota,
    make_request,
    make_result,
    make_running,
    make_template,
)
from tests.builders.inventory import (
    CLASS,
    DRIVER,
    Version,
    make_attribute,
    make_class,
    make_device,
    make_device_taint,
    make_devices,
    make_node,
    make_node_selector,
    make_opaque,
    make_selectors,
    make_slice,
    make_taint_rule,
)
from tests.builders.metadata import (
    CREATED,
    NAMESPACE,
    make_meta,
    make_namespace,
    make_uid,
    stored,
)

__all__ = [
    "CLASS",
    "CREATED",
    "DRIVER",
    "NAMESPACE",
    "Version",
    "make_allocation",
    "make_alternative",
    "make_alternatives",
    "make_attribute",
    "make_budget",
    "make_claim",
    "make_claim_config",
    "make_claim_spec",
    "make_class",
    "make_constraint",
    "make_consumer",
    "make_container",
    "make_device",
    "make_device_taint",
    "make_devices",
    "make_meta",
    "make_namespace",
    "make_node",
    "make_node_selector",
    "make_opaque",
    "make_pod",
    "make_priority",
    "make_quota",
    "make_request",
    "make_result",
    "make_running",
    "make_selectors",
    "make_slice",
    "make_taint_rule",
    "make_template",
    "make_uid",
    "stored",
]
