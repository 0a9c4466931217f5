"""Who did something, as pages name them: people by their name, parts of the system by what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dashboard.kit import links

AuthorKind = Literal["person", "account", "node", "system", "nobody"]

_NODE, _ACCOUNT, _CONTROLLER = "system:node:", "system:serviceaccount:", "system:serviceaccount:kube-system:"
_NAMED = {
    f"{_CONTROLLER}resourcequota-controller": "Quota controller",
    "system:kube-scheduler": "Scheduler",
    "system:kube-controller-manager": "Controllers",
    "system:manciple": "Manciple itself",
    "system:anonymous": "Nobody signed in",
    "": "Unknown",
}
_NOBODY = ("", "system:anonymous")


@dataclass(frozen=True, slots=True)
class Author:
    """name: the identity's, as the API knows it."""

    name: str

    @property
    def kind(self) -> AuthorKind:
        if self.name in _NOBODY:
            return "nobody"
        if self.name.startswith(_NODE):
            return "node"
        if self.name in _NAMED or self.name.startswith(_CONTROLLER):
            return "system"
        return "account" if self.name.startswith(_ACCOUNT) else "person"

    @property
    def label(self) -> str:
        """What a page calls them."""
        if self.name in _NAMED:
            return _NAMED[self.name]
        if self.name.startswith(_CONTROLLER):
            return self.name.removeprefix(_CONTROLLER).replace("-", " ").capitalize()
        if self.name.startswith(_NODE):
            return f"Agent of {self.name.removeprefix(_NODE)}"
        return self.name.removeprefix(_ACCOUNT).replace(":", "/", 1) if self.kind == "account" else self.name

    @property
    def initials(self) -> str:
        """Two letters of a person's name; "" for others, who have an icon."""
        return self.name[:2].upper() if self.kind == "person" else ""

    @property
    def icon(self) -> str:
        return {"node": "i-node", "account": "i-pod", "system": "i-over", "nobody": "i-alert"}.get(self.kind, "")

    @property
    def url(self) -> str:
        """Its page; "" where there is none."""
        return links.node_url(self.name.removeprefix(_NODE)) if self.kind == "node" else ""
