"""What a test of one link says, and what is known of the cluster while the tests go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from rltui.cluster.plain_text import plain

if TYPE_CHECKING:
    from rltui.cluster.profile import Profile
    from rltui.cluster.relay_client import RelayClient
    from rltui.cluster.relay_types import Hello
    from rltui.cluster.remote_paths import RemoteRoot
    from rltui.errors import RltuiError

CheckState = Literal["ok", "warning", "failed", "skipped"]


class Check(Struct, frozen=True, kw_only=True):
    """The result for one link."""

    name: str
    state: CheckState
    found: str
    """What was found or measured."""
    cause: str = ""
    """Why it is not fine."""
    next_step: str = ""
    seconds: float = 0.0
    """How long it took."""
    is_unreachable: bool = False
    """Whether the cluster could not be reached at all."""


class ClusterUnderTest(Struct, frozen=True, kw_only=True):
    """The cluster that is tested, and the way to it."""

    profile: Profile
    relay: RelayClient
    hello: Hello
    root: RemoteRoot


def ok(name: str, found: str, seconds: float = 0.0) -> Check:
    """A check that found its link in order, and what it found."""
    return Check(name=name, state="ok", found=plain(found), seconds=seconds)


def skipped(name: str, why: str) -> Check:
    """The link was not tested."""
    return Check(name=name, state="skipped", found=plain(why))


def warning(name: str, found: str, cause: str, next_step: str, seconds: float = 0.0) -> Check:
    """It works, and will hurt."""
    return Check(
        name=name, state="warning", found=plain(found), cause=plain(cause), next_step=plain(next_step), seconds=seconds
    )


def broken(name: str, cause: str, next_step: str) -> Check:
    """A check that failed: the cause, and what to do next."""
    return Check(name=name, state="failed", found=plain(cause), next_step=plain(next_step))


def failed(name: str, error: RltuiError, is_unreachable: bool = False) -> Check:
    """It does not work, as an error says."""
    return Check(
        name=name,
        state="failed",
        found=plain(error.message),
        next_step=plain(error.hint) or "Try the same by hand on the login node.",
        is_unreachable=is_unreachable,
    )


def verdict(checks: list[Check]) -> int:
    """The exit code: 0 fine, 1 something does not work, 3 the cluster could not be reached."""
    if any(check.is_unreachable for check in checks):
        return 3
    return int(any(check.state == "failed" for check in checks))
