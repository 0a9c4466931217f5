"""Why `podman run` failed, in the words of a kubelet.

Source: kubernetes pkg/kubelet/images/types.go, pkg/kubelet/kuberuntime/kuberuntime_container.go; containerd reports a
process that cannot be started as exit code 128, reason StartError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.program import PodmanFailed
from nodeagent.runtimes.request import ContainerRequest

#: The first and the longest wait between two attempts to fetch an image, in seconds.
FIRST_WAIT, LONGEST_WAIT = 10.0, 300.0

START_ERROR_EXIT = 128
#: What the low-level runtime says; its failures come after the container has been made.
_RUNTIME = re.compile(r"\bOCI\b|^(runc|crun): |: (runc|crun): ")
_FETCHING = re.compile(r"Trying to pull|short-name|initializing source|reading manifest|pinging container registry")


def is_start_error(error: ContainerFailed) -> bool:
    """Whether the container was made and its process could not be started: that is an attempt which ended."""
    return isinstance(error, PodmanFailed) and _RUNTIME.search(str(error)) is not None


def explained(error: ContainerFailed, request: ContainerRequest) -> ContainerFailed:
    """The same failure with the reason that a kubelet gives."""
    if not isinstance(error, PodmanFailed):
        return error
    image, text = request.image, str(error)
    if "invalid reference format" in text:
        return ContainerFailed(f'Failed to apply default image tag "{image}": {text}', reason="InvalidImageName")
    if "image not known" in text and request.pull_policy == "Never":
        message = f'Container image "{image}" is not present with pull policy of Never'
        return ContainerFailed(message, reason="ErrImageNeverPull")
    if _FETCHING.search(error.output) or "image not known" in text:
        return ContainerFailed(f'Failed to pull image "{image}": {text}', reason="ErrImagePull")
    return error


@dataclass(frozen=True, slots=True)
class Backoff:
    """An image that could not be fetched: not again before `until`, and then after `wait` seconds more."""

    until: float
    wait: float
    message: str

    def refusal(self, request: ContainerRequest) -> ContainerFailed:
        text = f'Back-off pulling image "{request.image}": ErrImagePull: {self.message}'
        return ContainerFailed(text, reason="ImagePullBackOff")


def next_backoff(last: Backoff | None, message: str, *, now: float) -> Backoff:
    wait = FIRST_WAIT if last is None else min(last.wait * 2, LONGEST_WAIT)
    return Backoff(now + wait, wait, message)
