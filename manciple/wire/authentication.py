"""authentication.k8s.io/v1: questions about who somebody is. Answered, never stored.

Source: k8s.io/api/authentication/v1/types.go.
"""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import ApiObject, Value, pb


class UserInfo(Value):
    """An identity: its name and the groups it belongs to."""

    username: Annotated[str, pb(1)] = ""
    uid: Annotated[str, pb(2)] = ""
    groups: Annotated[tuple[str, ...], pb(3)] = ()


class TokenReviewSpec(Value):
    """Whose bearer token is this? `audiences`: the names under which the one who was shown it goes; none, the API's."""

    token: Annotated[str, pb(1)] = ""
    audiences: Annotated[tuple[str, ...], pb(2)] = ()


class TokenReviewStatus(Value):
    """The answer. `audiences`: those of the question for which the token is good."""

    authenticated: Annotated[bool, pb(1)] = False
    user: Annotated[UserInfo, pb(2)] = UserInfo()
    audiences: Annotated[tuple[str, ...], pb(4)] = ()
    error: Annotated[str, pb(3)] = ""


class TokenReview(ApiObject):
    """Asked by a server that was shown a token, such as a node's agent."""

    spec: Annotated[TokenReviewSpec, pb(2)] = TokenReviewSpec()
    status: Annotated[TokenReviewStatus, pb(3)] = TokenReviewStatus()
