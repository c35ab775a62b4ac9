"""From the learners' weights to the engines: over groups that may break, and proven where no sample shows it.

One group holds learner rank 0 and all engines; where these sit on the learners' own cards, every worker of an engine
has a group with the learner of its card instead (``trainers.shared_channel``).
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rltui.onnode import rundir
from trainers.data.batch import Sample, sampled
from trainers.data.prompts import Prompt
from trainers.dispatch import Dispatch
from trainers.metrics import LogProbGap, check_parity, log_prob_gap
from trainers.placement import PlannedRole, planned_roles
from trainers.roles.calls import Role, RoleDiedError, RoleError, call_all, deaths
from trainers.roles.engine import WEIGHTS_GROUP
from trainers.roles.fleet import Fleet, ask, meeting_host
from trainers.roles.sampling import SamplingSettings
from trainers.session import Session
from trainers.stopping import StopRequestedError

Measure: TypeAlias = "Callable[[Sequence[str], Sequence[Sample]], dict[str, list[NDArray[np.float32]]]]"
"""See ``Loop.measure``."""

PROOF_INTERVAL = 20
"""Weight versions between two proofs of all engines where samples do not show it."""
PROOF_TOKENS = 256
"""Longest answer of a proof: enough for the mean, short enough to wait for."""
GIB = 2**30

log = logging.getLogger("trainers")


class WeightSync:
    """Brings all engines to the learners' weights, and those back that died.

    Args:
        session: The attempt.
        fleet: The roles.
        dispatch: What hands prompts to the engines, which rest while weights come unless they take them in flight.
        gap_of: Compares an engine with the learners.
        check: Called in waits that may be given up; what it raises ends them.
        has_experts: Whether learners choose experts by themselves.

    Attributes:
        drained_s: Seconds that engines took to end what they were at, since it was set to 0.
    """

    def __init__(
        self,
        session: Session,
        fleet: Fleet,
        dispatch: Dispatch[Any],
        gap_of: Callable[[Role], LogProbGap],
        check: Callable[[], None],
        *,
        has_experts: bool,
    ) -> None:
        layout = session.layout
        self._session, self._fleet, self._dispatch = session, fleet, dispatch
        self._gap_of, self._check, self._has_experts = gap_of, check, has_experts
        self._in_flight = layout.train.takes_weights_in_flight
        self._transfers = Transfers(
            fleet.learners,
            fleet.engines,
            layout.roles.rollout.tensor_parallel,
            fleet.deadlines.sync_s,
            session.stop.check,
            colocated_learners(planned_roles(layout)),
            self._in_flight,
        )
        self._version = 0
        self.drained_s = 0.0

    @property
    def versions(self) -> Mapping[str, int]:
        """The weight version that each engine has acknowledged, by its name."""
        return self._transfers.versions

    def open(self) -> None:
        """Let learners and engines meet for the first time, and tell how weights travel.

        Raises:
            RoleError: A role died, or did not come in time.
        """
        self._transfers.open()
        self._session.event("weights", f"weights travel by {self._transfers.route}")

    def send(self, version: int, deaths: Sequence[RoleDiedError] = ()) -> None:
        """Bring all engines to the learners' weights, which are ``version`` from here on; those that sleep wake up.

        An engine ends what it is at before it takes them, unless it takes them in flight. One that died is started
        again, and has to prove itself.

        Args:
            version: Of the weights.
            deaths: Engines that are known to have died, besides those that the dispatch knows of.

        Raises:
            RoleError: A role failed, a learner died, an engine acknowledged another version or died once too often.
            TrainingError: An engine does not run the learners' weights.
        """
        self._version = version
        try:
            restarted, began = self._restart([*self._dispatch.failures, *deaths]), time.monotonic()
            with contextlib.nullcontext() if self._in_flight else self._dispatch.held(self._check):
                self.drained_s += time.monotonic() - began
                restarted += self._send(version)
                again, experts = set(restarted), self._has_experts
                prove_engines(self._session, self._fleet, version, again, self._gap_of, has_experts=experts)
        except StopRequestedError:
            return  # the run ends, and nobody asks the engines any more
        self._dispatch.mend()

    def mend(self, *deaths: RoleDiedError) -> None:
        """Start engines again that died: those of ``deaths``, and those that the dispatch knows of."""
        self.send(self._version, deaths)

    def take_rate(self) -> dict[str, float]:
        """How fast each engine got new weights, as a metric; nothing where none came since the last call."""
        (sent, took_s), self._transfers.sent = self._transfers.sent, (0, 0.0)
        return {"weight_sync_gib_per_second": sent / GIB / took_s} if sent else {}

    def _send(self, version: int) -> list[Role]:
        """Send until all have them; the engines that died, or hung, meanwhile and were started again."""
        restarted: list[Role] = []
        sleep = self._fleet.engine_sleep
        # weights go into cards that the others made room on; the cache has its place only once these are there
        while deaths := sleep.end("weights") or self._transfers.send(version) or sleep.end("cache"):
            restarted += self._restart(deaths)
        return restarted

    def _restart(self, deaths: Sequence[RoleDiedError]) -> list[Role]:
        """Start engines again, which have initial weights and belong to no group then."""
        engines = self._fleet.restart(deaths)
        if engines:
            self._transfers.leave()
        return engines


class Transfers:
    """Opens the group and sends weights over it.

    Args:
        learners: By rank.
        engines: By number.
        width: Ranks of the group that an engine takes: its tensor parallelism.
        in_flight: Whether engines have a thread for weights.
        timeout_s: Most seconds for opening, and for a transfer.
        check: Called while the group opens; what it raises ends the wait.
        colocated: The learners on whose cards each engine's workers are, see ``colocated_learners``.

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
        # twice: the deadline of a rank that waits for the dead may have begun when ours was nearly over
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
        """Call a short ``method`` of one role and wait for its answer."""
        call = (role, getattr(role.actor, method).remote())
        return call_all([call], self._timeout_s, f"answering {method}", check=self._check)[0]


def prove_engines(
    session: Session,
    fleet: Fleet,
    version: int,
    restarted: Collection[Role],
    gap_of: Callable[[Role], LogProbGap],
    *,
    has_experts: bool,
) -> None:
    """Have engines prove that they run weight ``version``: those that were started again, and now and then all.

    Where rollouts run ahead, no sample that is trained on has the learners' own weights to be compared with; where
    unlikely tokens are never drawn, engines and learners say different log-probabilities of all of them. A proof is
    sampled from the whole distribution.

    Args:
        session: The attempt.
        fleet: The roles.
        version: Of the weights that all engines have now.
        restarted: Engines that were started again.
        gap_of: Compares an engine with the learners.
        has_experts: Whether learners choose experts by themselves.

    Raises:
        TrainingError: One does not run the learners' weights.
    """
    train = session.layout.train
    is_due = bool(train.async_steps or train.truncates) and version > 0 and version % PROOF_INTERVAL == 0
    is_due |= train.truncates and version == 1
    for engine in fleet.engines:
        if engine not in restarted and not is_due:
            continue
        title = f"{engine.title}, started again," if engine in restarted else engine.title
        apart = gap_of(engine)
        check_parity(f"{title} and the learners", apart, session.layout, has_experts=has_experts)
        if engine in restarted:
            text = f"{engine.title} runs weight version {version} and goes on"
            words = f"{text}; {apart.max_abs:.1e} apart from the learners"
            session.event(rundir.RESTART, words, roles=fleet.map())
            log.warning(text)


def proof_gap(fleet: Fleet, engine: Role, prompt: Prompt, settings: SamplingSettings, measure: Measure) -> LogProbGap:
    """Compare an engine with the learners on samples of its own, which no step is trained on.

    Args:
        fleet: The roles.
        engine: One of its engines.
        prompt: What it answers.
        settings: How the run samples; a proof is of the whole distribution.
        measure: Asks roles for a number a response token.
    """
    settings = settings.whole()
    settings = replace(settings, max_tokens=min(settings.max_tokens, PROOF_TOKENS))
    asked = ask(engine, "generate", [prompt.request], settings)
    [completions] = fleet.finish([asked], "proving its weights")
    samples = [sampled(prompt, one) for one in completions]
    found = np.concatenate(measure(["learner"], samples)["learner"])
    return log_prob_gap(found, np.concatenate([one.log_probs for one in completions]))


def colocated_learners(planned: Sequence[PlannedRole]) -> Mapping[str, tuple[str, ...]]:
    """The learners on whose slots the workers of each engine sit, in the order of the workers, by the engine's name.

    Empty where some worker has a slot of its own: then all engines get their weights from rank 0, over one group.
    """
    owners = {
        (plan.group, plan.bundle, plan.offset + slot): plan.name
        for plan in planned
        if plan.role == "learner"
        for slot in range(plan.slots)
    }
    found: dict[str, tuple[str, ...]] = {}
    for plan in planned:
        if plan.role == "engine":
            slots = [(plan.group, plan.bundle, plan.offset + slot) for slot in range(plan.slots)]
            if not all(slot in owners for slot in slots):
                return {}
            found[plan.name] = tuple(owners[slot] for slot in slots)
    hosts = [learner for learners in found.values() for learner in learners]
    return found if len(set(hosts)) == len(hosts) else {}
