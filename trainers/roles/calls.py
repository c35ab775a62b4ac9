"""How the driver calls its roles: every call has a deadline, and a role that dies or fails is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.placement import ProcessLocation

POLL_S = 0.5
"""How often a wait looks at its deadline and at a request to stop."""

VERDICT_S = 3.0
"""How long a failed call waits for a better culprit: the survivors of a dead rank often fail first, in a collective."""


class RoleError(RuntimeError):
    """A role failed, died or did not answer; the message names it, its process and its host."""


class RoleDiedError(RoleError):
    """A role's process is gone.

    Attributes:
        role: Whose.
        actor: Ray's handle of the process that died; ``role.actor`` is another one once it was started again.
        others: Further deaths that were found with this one.
    """

    def __init__(self, role: Role, message: str, others: Sequence[RoleDiedError] = ()) -> None:
        super().__init__(message)
        self.role, self.actor, self.others = role, role.actor, tuple(others)


class RoleHungError(RoleDiedError):
    """A role's process did not answer within its deadline: as good as gone, once it was killed."""


class NotLoadedError(RuntimeError):
    """The process is another one than the one that was loaded."""


@dataclass(eq=False)
class Role:
    """One Ray actor under the name that people know it by.

    Attributes:
        name: Such as ``learner 0``.
        actor: Ray's handle.
        pid: Process id, 0 until it is known.
        host: Host name, empty until it is known.
        kind: ``learner``, ``engine``, ``reference``, ``critic``, ``teacher``, ``judge`` or ``reward``.
        place: Where its process found itself; None until that is known.
    """

    name: str
    actor: Any
    pid: int = 0
    host: str = ""
    kind: str = ""
    place: ProcessLocation | None = None
    _ping: Any = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """Name with process and host, as far as they are known."""
        return f"{self.name} (pid {self.pid} on {self.host})" if self.pid else self.name

    def settle(self, place: ProcessLocation) -> None:
        """Note where its process is."""
        self.pid, self.host, self.place = place.pid, place.host, place

    def become(self, other: Role) -> None:
        """Go on as the process of ``other``, which was started in this one's place."""
        self.actor, self.pid, self.host, self.place = other.actor, other.pid, other.host, other.place
        self._ping = None

    def check_alive(self) -> None:
        """Raise ``RoleError`` if the process is known to have died; never waits.

        An idle actor answers a ping at once, and a busy one when it is done, so one ping is kept under way.
        """
        import ray

        if self._ping is None:
            self._ping = self.actor.__ray_ready__.remote()
        if ray.wait([self._ping], timeout=0)[0]:
            answered, self._ping = self._ping, None
            _result(self, answered, "a sign of life")


def call_all(
    calls: Sequence[tuple[Role, Any]],
    deadline_s: float,
    doing: str,
    on_answer: Callable[[Role, Any], None] | None = None,
    check: Callable[[], None] | None = None,
) -> list[Any]:
    """Wait for all calls and return their results in the order of ``calls``.

    Args:
        calls: Roles with the object references of the calls under way.
        deadline_s: Most seconds to wait for all of them together.
        doing: What the roles do, for errors: ``generating``.
        on_answer: Called with each result as it comes.
        check: Called at least every ``POLL_S``; what it raises ends the wait.

    Raises:
        RoleError: As soon as one role fails.
        RoleDiedError: As soon as one role dies, or when the deadline passes (``RoleHungError``).
    """
    import ray

    pending = {reference: index for index, (_, reference) in enumerate(calls)}
    results: list[Any] = [None] * len(calls)
    deadline = time.monotonic() + deadline_s
    while pending:
        if check is not None:
            check()
        left = deadline - time.monotonic()
        if left <= 0:
            raise _hung([calls[index][0] for index in pending.values()], deadline_s, doing)
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=min(POLL_S, left))
        for reference in ready:
            index = pending.pop(reference)
            role = calls[index][0]
            others = [calls[other] for other in pending.values()]
            results[index] = _result(role, reference, doing, others)
            if on_answer is not None:
                on_answer(role, results[index])
    return results


def deaths(calls: Sequence[tuple[Role, Any]], deadline_s: float, doing: str) -> list[RoleDiedError]:
    """Wait until all calls are over, however they end, and return the deaths among their roles.

    A role whose call is not over within ``deadline_s``, even though those of the others are, counts as dead.
    """
    import ray

    references = {reference: role for role, reference in calls}
    over, pending = ray.wait(list(references), num_returns=len(references), timeout=deadline_s)
    found = [_death(references[reference], reference, doing) for reference in over]
    dead = [death for death in found if death is not None]
    if pending:
        hung = _hung([references[reference] for reference in pending], deadline_s, doing)
        dead += [hung, *hung.others]
    return dead


def _hung(roles: Sequence[Role], deadline_s: float, doing: str) -> RoleHungError:
    """What to raise for roles that did not answer in time; its message names all of them."""

    def message(names: str) -> str:
        return f"no answer from {names} within {deadline_s:g} s while {doing}: see deadlines in the layout"

    others = [RoleHungError(role, message(role.title)) for role in roles[1:]]
    return RoleHungError(roles[0], message(", ".join(role.title for role in roles)), others)


def _death(role: Role, reference: Any, doing: str) -> RoleDiedError | None:
    """The death that ended a call that is over, if one did."""
    try:
        _result(role, reference, doing)
    except RoleDiedError as death:
        return death
    except RoleError:
        return None
    return None


def _result(role: Role, reference: Any, doing: str, others: Sequence[tuple[Role, Any]] = ()) -> Any:
    """The result behind ``reference``, which is ready; a failure is laid at the door of whoever died, if anyone did."""
    import ray
    from ray.exceptions import RayActorError, RayTaskError

    try:
        return ray.get(reference)
    except RayActorError as error:
        raise RoleDiedError(role, f"{role.title} died while {doing}: {_cause_of_death(error)}") from error
    except RayTaskError as error:
        dead = _first_dead(others)
        if dead is not None:
            message = f"{dead.title} died while {doing}; {role.name} then failed: {_first_line(error)}"
            raise RoleDiedError(dead, message) from error
        raise RoleError(f"{role.title} failed while {doing}: {_first_line(error.cause or error)}") from error


def _first_dead(calls: Sequence[tuple[Role, Any]]) -> Role | None:
    """The first role of ``calls`` whose process turns out to be dead within ``VERDICT_S``."""
    import ray
    from ray.exceptions import RayActorError, RayError

    deadline = time.monotonic() + VERDICT_S
    pending = {reference: role for role, reference in calls}
    while pending and time.monotonic() < deadline:
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
        for reference in ready:
            role = pending.pop(reference)
            try:
                ray.get(reference)
            except RayActorError:
                return role
            except RayError:
                continue
    return None


def _cause_of_death(error: BaseException) -> str:
    """Ray's words on the cause, which it has on the last line, without its list of guesses: that is always the same."""
    causes = [line.strip() for line in str(error).splitlines() if "because" in line]
    return causes[-1].partition(" Some common causes include")[0] if causes else _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
