"""The agent's errors: one family, each naming its object and saying who does what next."""

from __future__ import annotations


class AgentError(Exception):
    """Anything that stops one piece of work now; the work is tried again later."""


class ApiFailure(AgentError):
    """The API server answered with an error, or not at all (then `code` is 0).

    code: HTTP status; reason: metav1.StatusReason, "ConnectionFailed" where no answer came. namespace_ends: the
    namespace is gone, or being deleted: it takes nothing new.
    """

    def __init__(self, message: str, *, code: int, reason: str, namespace_ends: bool = False) -> None:
        super().__init__(message)
        self.namespace_ends = namespace_ends
        self.message = message
        self.code = code
        self.reason = reason

    @property
    def not_found(self) -> bool:
        return self.reason == "NotFound"

    @property
    def already_exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        return self.reason == "Conflict"

    @property
    def forbidden(self) -> bool:
        """What the agent knows of the object may be out of date: a pod that is another node's by now, labels that
        somebody changed meanwhile. The server looks at that before it looks at the revision.
        """
        return self.reason == "Forbidden"

    @property
    def expired(self) -> bool:
        """The revision asked for is pruned: list again."""
        return self.reason in ("Expired", "Gone")


class CredentialRefused(AgentError):
    """The node does not get the certificate that it asked for."""


class PrepareRefused(AgentError):
    """A pod's claim is not in a state in which its containers may start. Told to its owner by an event."""


class PrepareFailed(AgentError):
    """A driver failed while a claim was prepared, or is not there. Told to the pod's owner by an event."""


class UnprepareFailed(AgentError):
    """A driver failed while a claim was given back, or is not there; the pod is held until it works."""


class StorageFailed(AgentError):
    """The node's disk refused a write that must be done before going on."""


class ContainerFailed(AgentError):
    """The runtime could not do what it was asked to do with a container.

    reason: of a container that waits for its start, as a kubelet says it (CreateContainerError, ErrImagePull, ...).
    """

    def __init__(self, message: str, *, reason: str = "CreateContainerError") -> None:
        super().__init__(message)
        self.reason = reason


class StillStopping(AgentError):
    """Containers have been told to end and have not yet; look again in `seconds`, or when they have ended."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"containers are being stopped; checking again in {seconds:.1f} s")
        self.seconds = seconds


class ListenFailed(AgentError):
    """The agent's own endpoint cannot be served where it was told to."""


class LogsUnavailable(AgentError):
    """A container whose log was asked for has not run here, or not before its latest start."""


class StreamFailed(AgentError):
    """A command, a container or a port that somebody wanted to talk to: it is not there, or not any more."""


class StreamRefused(AgentError):
    """This runtime has nothing to talk to."""
