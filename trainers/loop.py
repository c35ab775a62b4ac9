"""What a step of every algorithm is made of, in its order: generate, reward, measure, optimize, bring weights over."""

from __future__ import annotations

import abc
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.agents import AgentTurns
from trainers.colocation import begins_early, concurrent
from trainers.data.batch import Rows, Sample, Shard, join_columns, packing_efficiency, shard, split, without_routes
from trainers.data.codec import Codec
from trainers.data.curriculum import make_curriculum
from trainers.data.models import routes_to_experts
from trainers.data.prompts import Prompt
from trainers.data.tasks import make_task
from trainers.evaluations import Evaluations
from trainers.lookahead import Lookahead, StalenessCounter
from trainers.metrics import LogProbGap, check_numbers, check_routes, merge
from trainers.multi_turn import EnvironmentTurns, make_multi_turn
from trainers.phases import Phases, StepMeter
from trainers.prefetch import OnAnswer, Prefetch, expect_all
from trainers.reporting import Reporter
from trainers.resuming import initial_state
from trainers.rewards.actors import RunRewards
from trainers.rewards.composed import score_groups
from trainers.roles.calls import Role
from trainers.roles.completions import Completion, derive_seed
from trainers.roles.critic import Critic
from trainers.roles.fleet import Fleet
from trainers.roles.learner import Learner
from trainers.roles.reference import Reference
from trainers.roles.sampling import SamplingSettings, training_settings
from trainers.roles.step_report import StepReport
from trainers.rollouts import Rollouts, sequences_per_engine, spare_samples
from trainers.samples import SampleLog
from trainers.saving import Saver
from trainers.session import Session
from trainers.weight_sync import WeightSync, proof_gap

MEASURED_BY: dict[str, Callable[..., Any]] = {
    "learner": Learner.log_probs,
    "reference": Reference.log_probs,
    "critic": Critic.values,
}
"""What each kind of role is asked for its number a token; its column is in ``COLUMN_OF``."""

log = logging.getLogger("trainers")


class Loop(abc.ABC):
    """The training loop of one attempt: its step is the algorithm's own, and ``trainers.attempt`` makes one by one.

    Args:
        session: The attempt.
        fleet: The roles, loaded.
        codec: The model's tokenizer.

    Attributes:
        state: What a checkpoint must remember; that of the last whole step.
        memory_gib: Memory of each learner rank in the last step.
        has_experts: Whether the policy routes tokens to experts, and learners choose these by themselves.
        sample_log: Where some answers are written.
        multi_turn: The environments or agents; None where answers have one turn.
    """

    has_experts = False
    sample_log: SampleLog | None = None
    multi_turn: EnvironmentTurns | AgentTurns | None = None

    def __init__(self, session: Session, fleet: Fleet, codec: Codec) -> None:
        layout, train = session.layout, session.layout.train
        self.session, self.layout, self.fleet, self.codec = session, layout, fleet, codec
        self.phases = Phases(session.board)
        self.multi_turn = make_multi_turn(session, fleet, codec)
        task = self.multi_turn.task() if self.multi_turn else make_task(layout, codec)
        self.task = self.curriculum = make_curriculum(layout, task)
        if self.task.left_out:
            text = f"prompts that are longer than lengths.prompt and left out: {self.task.left_out}"
            session.event("data", text, left_out=self.task.left_out)
            log.warning(text)
        self.reward = RunRewards(session, fleet)
        self.prefetched_rewards = Prefetch(self.compute_rewards)
        self.prefetches: list[Prefetch[Any]] = [self.prefetched_rewards]
        self.rollouts = Rollouts(
            fleet.engines,
            train.prompts_per_step,
            fleet.deadlines.generate_s,
            ahead=train.async_steps,
            slots=sequences_per_engine(layout),
            spare=spare_samples(layout),
        )
        self.lookahead = self._look_ahead()
        self.staleness = StalenessCounter(train.async_steps)
        self.saver = Saver(session, fleet)
        self.state = initial_state(layout)
        self.has_experts = routes_to_experts(codec.model_path) and not layout.roles.rollout.router_replay
        asked = self.rollouts.dispatch, self._proof_gap, self.check_others
        self.weights = WeightSync(session, fleet, *asked, has_experts=self.has_experts)
        counted = self.rollouts, self.weights, self.phases, self.staleness
        self.meter = StepMeter(session, fleet, *counted, codec.model_path)
        self.reporter = Reporter(session, fleet, self.weights)
        self.sample_log = SampleLog(session.attempt, codec, session.tracker.send_samples)
        queues = {"Prompt Queue": self.rollouts.prompts, "Inference Results Queue": self.rollouts.results}
        session.board.watch_queues(queues | ({"Judge Queue": self.reward.judges.queue} if self.reward.judges else {}))
        parts = session, fleet, codec, self.rollouts, self.multi_turn, self.rewards
        self.evaluations = Evaluations(*parts, self.check if self.multi_turn else self.check_others, self.weights.mend)
        self.memory_gib: list[float] = []

    def _look_ahead(self) -> Lookahead:
        """What draws prompts and has them answered: in one turn, or in several by an environment."""
        train = self.layout.train
        steps = train.prompts_per_step, train.async_steps, train.steps, lambda: self.phase("data")
        if self.multi_turn is None:
            return Lookahead(self.task, self.rollouts, self.sampling, *steps, expect=self.expect)
        talks = self.multi_turn.conversations(self.rollouts, train.seed)
        return Lookahead(self.task, talks, self.sampling, *steps, as_asked=talks.as_asked)

    def _proof_gap(self, engine: Role) -> LogProbGap:
        [prompt] = self.task.prompts(self.state.cursor, 1)
        return proof_gap(self.fleet, engine, prompt, self.sampling(self.state.step), self.measure)

    @abc.abstractmethod
    def step(self) -> dict[str, float]:
        """One training step: moves ``state`` and returns its metrics."""

    def close(self) -> None:
        """End what the loop started, all of it even where a part fails."""
        started = [self.rollouts, self.reward, *self.prefetches, self.saver, self.reward.judges, self.multi_turn]
        with contextlib.ExitStack() as stack:
            for one in started:
                if one is not None:
                    stack.callback(one.close)

    def generate(
        self, number: int, drawn: int = 0, count: int | None = None
    ) -> tuple[list[Prompt], list[list[Completion]]]:
        """Prompts of step ``number``, and the samples of each.

        Args:
            number: The step.
            drawn: Prompts that the step has drawn before.
            count: Prompts to draw now, ``prompts_per_step`` at most and by default.
        """
        if drawn:
            count = self.layout.train.prompts_per_step if count is None else count
            prompts, groups = self.lookahead.draw(number, drawn, count, self.check)
        else:
            prompts, groups = self.lookahead.collect(number, self.check)
        if self.layout.roles.rollout.router_replay:
            check_routes(prompts, groups)
        return prompts, self.staleness.note(groups, self.state.weight_version)

    def sampling(self, step: int) -> SamplingSettings:
        """How step ``step`` samples; its seed depends on the run's and the step, and each prompt's on it."""
        return training_settings(self.layout, self.codec, derive_seed(self.layout.train.seed, step))

    def expect(self, prompts: Sequence[Prompt]) -> OnAnswer:
        """What is to be called with answers to the prompts of a step as they come."""
        return expect_all(self.prefetches, prompts)

    def rest(self) -> None:
        """Let engines that share cards sleep while the other roles work: the step has nothing more to generate."""
        if self.fleet.engine_sleep.is_used:
            with self.phase("sleep"):
                self.fleet.engine_sleep.begin()

    def rewards(self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> list[list[float]]:
        """The true reward of each sample of each prompt, judged by now where the answers were expected."""
        parts = self.prefetched_rewards.take(prompts)
        found = (
            self.compute_rewards(prompts, groups) if parts is None else [rewards for part in parts for rewards in part]
        )
        self.curriculum.note(prompts, found)
        if self.sample_log is not None:
            self.sample_log.write(self.state.step + 1, prompts, groups, found)
        return found

    def compute_rewards(self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> list[list[float]]:
        """What the reward, or the environment, says of each sample of each prompt."""
        if self.multi_turn:
            return [[one.outcome.reward if one.outcome else 0.0 for one in group] for group in groups]
        return score_groups(self.reward, self.codec, prompts, groups)

    def measure(self, kinds: Sequence[str], samples: Sequence[Sample]) -> dict[str, list[NDArray[np.float32]]]:
        """Ask roles for a number a response token: by kind of role, one array a sample.

        Args:
            kinds: Of the roles. Those on GPUs of their own work at the same time, colocated ones one after the other,
                so that their activations never meet.
            samples: What is measured.
        """
        found: dict[str, list[NDArray[np.float32]]] = {}
        for together in concurrent(self.layout, kinds):
            parts = {kind: self.split(samples, kind) for kind in together}
            calls = {kind: self.fleet.begin(kind, MEASURED_BY[kind], parts[kind]) for kind in together}
            for kind, begun in calls.items():
                answers = self.fleet.finish(begun, f"computing {MEASURED_BY[kind].__name__}")
                found[kind] = join_columns(answers, parts[kind], samples)
        return found

    def split(self, samples: Sequence[Sample], kind: str) -> list[Rows]:
        """The rows of ``samples`` for each role of a kind."""
        samples = samples if kind == "learner" else without_routes(samples)
        return split(samples, len(self.fleet.of(kind)), self.layout.lengths.pack, self.layout.sharing_of(kind))

    def optimize(self, number: int, trained: Sequence[Sample], measured: Sequence[Sample] = ()) -> dict[str, float]:
        """Make the policy's optimizer steps of training step ``number``; their metrics.

        Args:
            number: The training step.
            trained: Samples to take the gradient of.
            measured: Samples whose log-probabilities are only looked at.
        """
        shards = self.shards(number, trained, measured)
        begun = self.fleet.begin("learner", Learner.train, shards)
        began = time.monotonic()
        self.lookahead.prepare(number)  # while the learners work, this process has nothing to wait for
        read_s = time.monotonic() - began
        packing = packing_efficiency(shards, self.layout.roles.learner.micro_batch)
        reports: list[StepReport] = self.fleet.finish(begun, "training")
        worked_s = max(report.ended_at - report.began_at for report in reports)
        self.phases.move(max(0.0, read_s - worked_s), "train", "data")  # for that they wait
        metrics = merge(reports, self.layout.sharing_of("learner"), truncates=self.layout.train.truncates)
        self.memory_gib = [report.memory_gib for report in reports]
        metrics["packing_efficiency"] = packing
        check_numbers(number, metrics, self.layout, has_experts=self.has_experts)
        return metrics

    def shards(
        self, number: int, trained: Sequence[Sample], measured: Sequence[Sample] = (), kind: str = "learner"
    ) -> list[Shard]:
        """The share of each rank of ``kind`` in training step ``number``, by rank."""
        from trainers.losses import token_mean
        from trainers.variants import variant

        train, layout = self.layout.train, self.layout
        return shard(
            trained,
            measured,
            self.state.num_critics if kind == "critic" else self.state.num_learners,
            variant(layout.grpo, "aggregation") if layout.algorithm == "grpo" else token_mean,
            response_limit=layout.lengths.response,
            optimizer_steps=train.optimizer_steps,
            epochs=train.epochs,
            seed=train.seed + number,
            pack_tokens=layout.lengths.pack,
            sharing=layout.sharing_of(kind),
        )

    @property
    def needs_old_log_probs(self) -> bool:
        """Whether the policy moves between the first and the last optimizer step of a training step."""
        return self.layout.train.optimizer_steps * self.layout.train.epochs > 1

    def sync(self, version: int) -> None:
        """Bring all engines to ``version``; those that sleep lost their weights, even where these have not moved."""
        self.weights.drained_s = 0.0
        with self.phase("weight_sync"):
            if version != self.state.weight_version or self.fleet.engine_sleep.asleep:
                self.weights.send(version)
        if self.layout.train.async_steps:  # that engines end what they are at is generation's time, not the hand-over's
            self.phases.move(self.weights.drained_s, "weight_sync", "drain")
        elif begins_early(self.layout) and not self.session.stop.requested:
            self.lookahead.begin(self.state.step + 2)  # of the step after the one that ends

    def check(self) -> None:
        """Called while engines generate, which may take long: as ``check_others``, and has an engine died?"""
        self.check_others()
        if self.rollouts.dispatch.failures:
            self.weights.mend()

    def check_others(self) -> None:
        """Is a stop overdue, has a learner died?"""
        self.session.stop.check_patience()
        self.fleet.check_trained()

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Show and time one phase of a step."""
        return self.phases.phase(name)
