"""Pods to begin with. PURE."""

from __future__ import annotations

from dataclasses import dataclass

_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: example.com/main
    resources:
      claims:
      - name: gpu
  resourceClaims:
  - name: gpu
    {claim}
"""

_TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: {name}
  namespace: {namespace}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: {device_class}
{more}---
"""

_CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: {name}
  namespace: {namespace}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: {device_class}
---
"""

_SELECTED = """\
          count: 2
          selectors:
          - cel:
              expression: device.driver != ""
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """name: in the address; word: what it shows."""

    name: str
    word: str
    parts: tuple[str, ...]

    def text(self, *, namespace: str, device_class: str) -> str:
        """The example for a namespace and a class that exist."""
        joined = "".join(self.parts)
        return joined.replace("{namespace}", namespace or "default").replace("{device_class}", device_class)


def _named(text: str, name: str, **more: str) -> str:
    found = text.replace("{name}", name)
    for key, value in {"more": "", **more}.items():
        found = found.replace(f"{{{key}}}", value)
    return found


EXAMPLES = (
    Example(
        name="one-device",
        word="A pod with one device",
        parts=(
            _named(_TEMPLATE, "one-device"),
            _named(_POD, "trainer", claim="resourceClaimTemplateName: one-device"),
        ),
    ),
    Example(
        name="two-selected",
        word="Two devices that a selector accepts",
        parts=(
            _named(_TEMPLATE, "two-selected", more=_SELECTED),
            _named(_POD, "trainer", claim="resourceClaimTemplateName: two-selected"),
        ),
    ),
    Example(
        name="shared",
        word="Two pods that share a claim",
        parts=(
            _named(_CLAIM, "ours"),
            _named(_POD, "reader", claim="resourceClaimName: ours"),
            "---\n",
            _named(_POD, "writer", claim="resourceClaimName: ours"),
        ),
    ),
)


def find(name: str) -> Example | None:
    return next((one for one in EXAMPLES if one.name == name), None)
