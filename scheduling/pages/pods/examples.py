"""Pods to begin with. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

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

_SPEC = """\
devices:
  requests:
  - name: gpu
    exactly:
      deviceClassName: {device_class}
"""

_TWO_SELECTED = """\
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


def _object(kind: str, name: str, spec: str) -> str:
    """A document of the device API, and what separates it from the next."""
    head = f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: {{namespace}}\n"
    return f"{head}spec:\n{indent(spec, '  ')}---\n"


def _pod(name: str, claim: str) -> str:
    return _POD.replace("{name}", name).replace("{claim}", claim)


def _from_template(name: str, word: str, spec: str) -> Example:
    """A template, and a pod for which a claim is made from it."""
    template = _object("ResourceClaimTemplate", name, f"spec:\n{indent(spec, '  ')}")
    return Example(name=name, word=word, parts=(template, _pod("trainer", f"resourceClaimTemplateName: {name}")))


EXAMPLES = (
    _from_template("one-device", "A pod with one device", _SPEC),
    _from_template("two-selected", "Two devices that a selector accepts", _SPEC + _TWO_SELECTED),
    Example(
        name="shared",
        word="Two pods that share a claim",
        parts=(
            _object("ResourceClaim", "ours", _SPEC),
            _pod("reader", "resourceClaimName: ours"),
            "---\n",
            _pod("writer", "resourceClaimName: ours"),
        ),
    ),
)


def find(name: str) -> Example | None:
    return next((one for one in EXAMPLES if one.name == name), None)
