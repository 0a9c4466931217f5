"""The addresses of pages in templates: `{% pod_url pod.namespace pod.name %}`, `{{ node.name|node_url }}`.

`{% list_url query at=row.key %}` is the list's own address with some of it changed.
"""

from __future__ import annotations

from typing import Any

from django import template

from manciple.pages import links
from manciple.pages.lists import ListQuery

register = template.Library()

for _tag in (
    *(links.pod_url, links.claim_url, links.template_url, links.quota_url),
    *(links.device_url, links.device_in_grid_url, links.yaml_url),
):
    register.simple_tag(_tag)
for _filter in (
    *(links.node_url, links.class_url, links.driver_url, links.namespace_url),
    *(links.role_url, links.access_url, links.person_url, links.incident_url, links.taint_rule_url),
):
    register.filter(_filter.__name__, _filter)


@register.simple_tag
def list_url(query: ListQuery, **changes: Any) -> str:
    return query.url(**changes)
