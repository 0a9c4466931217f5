"""Real containers, by podman and runc.

What podman knows about a container is the truth about it; beside it each pod has a folder with what podman is not
told: what was asked for, how earlier attempts ended, logs, volumes. Both outlive the agent.
"""

from nodeagent.runtimes.podman.runtime import PodmanRuntime, create

__all__ = ["PodmanRuntime", "create"]
