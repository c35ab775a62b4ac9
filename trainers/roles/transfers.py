"""Bringing engines to the learners' weights, over groups that may break.

One group holds learner rank 0 and all engines; where these sit on the learners' own cards, every worker of an engine
has a group with the learner of its card instead (``trainers.shared_channel``).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainers.roles.calls import Role, RoleDiedError, RoleError, call_all, deaths
from trainers.roles.engine import WEIGHTS_GROUP

LOOPBACK = "127.0.0.1"


class Transfers:
    """Opens the group and sends weights over it.

    Args:
        learners: By rank.
        engines: By number.
        width: Ranks of the group that an engine takes: its tensor parallelism.
        in_flight: Whether engines have a thread for weights.
        timeout_s: Most seconds for opening, and for a transfer.
        check: Called while the group opens; what it raises ends the wait.
        colocated: The learners on whose cards each engine's workers are, see ``trainers.roles.routes``.

    Attributes:
        versions: Weight version that each engine acknowledged last, by its name.
        route: In words, how weights travel; empty until the group was opened.
        sent: Bytes that each engine got in the last transfer, and the seconds that it took.
    """

    def __init__(
        self,
        learners: Sequence[Role],
        engines: Sequence[Role],
        width: int,
        timeout_s: float,
        check: Callable[[], None],
        colocated: Mapping[str, tuple[str, ...]],
        in_flight: bool,
    ) -> None:
        self._learners, self._engines, self._width = learners, engines, width
        self._colocated, self._in_flight = colocated, in_flight
        self._timeout_s, self._check = timeout_s, check
        self._manifest: Any = None
        self._is_open = False
        self.versions: dict[str, int] = {}
        self.route, self.sent = "", (0, 0.0)

    def open(self) -> None:
        """Let learner rank 0 and all engines meet; they leave an earlier group.

        Raises:
            RoleError: A role died, or did not come in time.
        """
        if deaths := self._open():
            raise deaths[0]

    def leave(self) -> None:
        """The group is of no use any more: the next transfer opens another."""
        self._is_open = False

    def send(self, version: int) -> list[RoleDiedError]:
        """Send the learners' weights as ``version``.

        Returns:
            The deaths of engines that kept it from coming to an end; none where all engines have the weights. One that
            does not answer even when the others gave up counts as dead.

        Raises:
            RoleError: A learner died, a role failed for another reason than a death, or an engine acknowledged another
                version.
        """
        if not self._is_open and (found := self._open()):
            return found
        began = time.monotonic()
        calls = [(role, role.actor.send_weights.remote(version)) for role in self._learners]
        calls += [(one, self._call(one, "receive_weights", self._manifest, version)) for one in self._engines]
        try:
            answers = call_all(calls, self._timeout_s, f"taking part in the transfer of weight version {version}")
        except RoleError as error:
            return self._deaths_of_engines(calls, error)
        for role, answer in zip(self._engines, answers[len(self._learners) :], strict=True):
            if answer != version:
                raise RuntimeError(f"{role.title} acknowledged weight version {answer} instead of {version}")
            self.versions[role.name] = version
        self.sent = max(answers[: len(self._learners)]), time.monotonic() - began
        return []

    def _open(self) -> list[RoleDiedError]:
        if self._manifest is None:
            self._manifest = self._ask(self._learners[0], "manifest")
        calls = self._meet_on_cards() if self._colocated else self._meet_rank_0()
        try:
            answers = call_all(calls, self._timeout_s, "opening the weight transfer", check=self._check)
        except RoleError as error:
            return self._deaths_of_engines(calls, error)
        self._is_open, self.route = True, next((answer for answer in answers if answer), "")
        return []

    def _meet_rank_0(self) -> list[tuple[Role, Any]]:
        from trainers.weights import WeightGroup

        first = self._learners[0]
        group = WeightGroup(
            meeting_host([*self._learners, *self._engines]),
            self._ask(first, "free_port"),
            1 + self._width * len(self._engines),
            timeout_s=self._timeout_s,
        )
        calls = [(first, first.actor.join_weight_group.remote(group, self._timeout_s))]
        for number, engine in enumerate(self._engines):
            calls.append((engine, self._call(engine, "join_weight_group", group, 1 + number * self._width)))
        return calls

    def _meet_on_cards(self) -> list[tuple[Role, Any]]:
        from trainers.weights import WeightGroup

        learners, calls = {role.name: role for role in self._learners}, []
        for engine in self._engines:
            hosts = [learners[name] for name in self._colocated[engine.name]]
            places = tuple(secrets.token_hex(16) for _ in hosts)
            group = WeightGroup("", 0, 2, timeout_s=self._timeout_s, places=places)
            calls.append((engine, self._call(engine, "join_weight_group", group, 1)))
            for host, place in zip(hosts, places, strict=True):
                own = replace(group, places=(place,))
                calls.append((host, host.actor.join_weight_group.remote(own, self._timeout_s)))
        return calls

    def _deaths_of_engines(self, calls: Sequence[tuple[Role, Any]], error: RoleError) -> list[RoleDiedError]:
        """Let all others come to an end too; those that waited for the dead do so when their patience is over.

        What failed first may only have waited for an engine that hangs; where none died or hangs, ``error`` it was.
        """
        self._is_open = False
        found = deaths(calls, 2 * self._timeout_s, "new weights were on their way")
        for death in found:
            if death.role.kind != "engine":
                raise death
        if not found:
            raise error
        return found

    def _call(self, engine: Role, method: str, *arguments: Any) -> Any:
        """Begin ``method``, beside what the engine is at where it can do both."""
        call = getattr(engine.actor, method)
        if self._in_flight:
            call = call.options(concurrency_group=WEIGHTS_GROUP)
        return call.remote(*arguments)

    def _ask(self, role: Role, method: str) -> Any:
        """Call a short ``method``."""
        call = (role, getattr(role.actor, method).remote())
        return call_all([call], self._timeout_s, f"answering {method}", check=self._check)[0]


def meeting_host(roles: Sequence[Role]) -> str:
    """Address of the first of ``roles`` that all of them can reach: loopback where they are on one node."""
    places = [role.place for role in roles if role.place is not None]
    return LOOPBACK if len({place.node_id for place in places}) == 1 else places[0].address
