"""Group relative policy optimisation: ``python -m trainers.grpo --attempt DIR``.

One step, top to bottom: engines answer the step's prompts; answers are rewarded; a sample's advantage is its reward
against its siblings'; the learners make one optimizer step; the engines get the new weights. Everything that watches a
run learns of it from the files that ``rltui.onnode.rundir`` names.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.layout.load import load_layout
from rltui.onnode import rundir
from trainers.checkpoint import Checkpoints, NoSpaceError, TrainingState
from trainers.data.batch import Sample, shard
from trainers.data.codec import Codec
from trainers.data.models import resolve_model
from trainers.data.sort_digits import SortDigits
from trainers.dry_run import dry_run
from trainers.metrics import check_numbers, merge, rates, sample_metrics
from trainers.queues import Rollouts
from trainers.reporting import Reporter
from trainers.rewards import training_rewards
from trainers.rewards.exact import exact_reward
from trainers.roles.engine import SamplingSettings, derive_seed
from trainers.roles.fleet import Deadlines, Fleet
from trainers.session import Session
from trainers.stopping import EXIT_CODE, Stop, StopRequestedError, leave

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from trainers.data.sort_digits import Prompt
    from trainers.roles.calls import Role
    from trainers.roles.engine import Completion

log = logging.getLogger("trainers")


class Grpo:
    """The training loop of one attempt.

    Args:
        session: The attempt.
        fleet: The roles, loaded.
        codec: The model's tokenizer.

    Attributes:
        state: What a checkpoint must remember; that of the last whole step.
        memory_gib: Memory of each learner rank in the last step.
    """

    def __init__(self, session: Session, fleet: Fleet, codec: Codec) -> None:
        layout = session.layout
        train, learner = layout.train, layout.roles.learner
        self.session, self.layout, self.fleet, self.codec = session, layout, fleet, codec
        self.task = SortDigits(layout.data.digits, train.seed, codec.encode)
        self.rollouts = Rollouts(
            fleet.engines, train.prompts_per_step, train.samples_per_prompt, fleet.deadlines.generate_s
        )
        self.checkpoints = Checkpoints(str(session.run), layout.checkpoint.keep)
        self.checkpoint_bytes = fleet.checkpoint_bytes()
        self.state = TrainingState(num_learners=learner.num_learners, zero_stage=learner.zero_stage)
        self.reporter = Reporter(session, fleet)
        session.board.watch_queues(
            {"Prompt Queue": self.rollouts.prompts, "Inference Results Queue": self.rollouts.results}
        )
        self.memory_gib: list[float] = []
        self._durations: dict[str, float] = {}

    def resume(self) -> None:
        """Go back to the newest checkpoint, where there is one, and bring the engines to the learners' weights."""
        found = self.checkpoints.newest()
        if found is not None:
            path, saved = found
            saved.check_fits(self.state)
            self.fleet.restore(str(path))
            self.state = saved
            self.session.event("checkpoint", f"resumed from step {saved.step}", step=saved.step, path=str(path))
            log.info("resumed from %s", path)
        self.fleet.send_weights(self.state.weight_version)

    def run(self) -> bool:
        """Train until all steps are done or a stop is requested, and save; returns whether all steps are done."""
        with contextlib.closing(self.rollouts):
            while self.state.step < self.layout.train.steps and not self.session.stop.requested:
                try:
                    metrics = self.step()
                except StopRequestedError:
                    break  # a long generation was given up: what counts is the state after the last whole step
                metrics["time/saving"] = self.save_if_due()
                self.reporter.report(self.state, metrics, self.memory_gib)
        self.save()
        return self.state.step >= self.layout.train.steps

    def step(self) -> dict[str, float]:
        """One training step; its metrics."""
        import torch

        from trainers.advantages import group_advantages, has_signal

        began, train, grpo = time.monotonic(), self.layout.train, self.layout.grpo
        number, version = self.state.step + 1, self.state.weight_version
        with self.phase("generate"):
            prompts = self.task.prompts(self.state.cursor, train.prompts_per_step)
            groups = self.rollouts.generate([p.token_ids for p in prompts], self.sampling(number), self.check)
        with self.phase("reward"):
            true_rewards = [
                [self.reward(p, sample) for sample in group] for p, group in zip(prompts, groups, strict=True)
            ]
            rewards = torch.tensor(training_rewards(self.layout.data.reward, true_rewards, train.seed, number))
            advantages, signal = group_advantages(rewards, grpo.advantage), has_signal(rewards)
            trained, measured = self.sort(prompts, groups, advantages, signal)
        with self.phase("train"):
            shards = shard(trained, measured, self.state.num_learners, grpo.aggregation)
            reports = self.fleet.train(shards)
        metrics, self.memory_gib = merge(reports), [report.memory_gib for report in reports]
        check_numbers(number, metrics, self.layout)
        with self.phase("weight_sync"):
            if trained:
                version += 1
                self.fleet.send_weights(version)
        self.state = self.state.after_step(train.prompts_per_step, version)
        metrics |= sample_metrics(groups, true_rewards)
        metrics["zero_std_fraction"] = 1.0 - float(signal.float().mean())
        return metrics | self.timings(prompts, groups, time.monotonic() - began)

    def sampling(self, step: int) -> list[SamplingSettings]:
        """Settings for each chunk of the step's prompts; a seed depends on the run's seed, the step and the chunk."""
        train = self.layout.train
        return [
            SamplingSettings(
                temperature=train.temperature,
                max_tokens=self.layout.lengths.response,
                samples_per_prompt=train.samples_per_prompt,
                stop_token_id=self.codec.stop_token_id,
                seed=derive_seed(train.seed, step, chunk),
            )
            for chunk in range(self.rollouts.num_chunks(train.prompts_per_step))
        ]

    def check(self) -> None:
        """Called while engines generate, which may take long: is a stop overdue, has a learner died?"""
        self.session.stop.check_patience()
        self.fleet.check_learners()

    def reward(self, prompt: Prompt, sample: Completion) -> float:
        """The true reward of a sample."""
        return exact_reward(self.codec.decode(sample.token_ids), prompt.answer, sample.finish_reason == "stop")

    def sort(
        self,
        prompts: Sequence[Prompt],
        groups: Sequence[Sequence[Completion]],
        advantages: torch.Tensor,
        signal: torch.Tensor,
    ) -> tuple[list[Sample], list[Sample]]:
        """Samples to train on, and those of groups without signal, which are only measured where they are filtered."""
        trained: list[Sample] = []
        measured: list[Sample] = []
        for prompt, group, values, teaches in zip(prompts, groups, advantages.tolist(), signal.tolist(), strict=True):
            target = trained if teaches or not self.layout.grpo.filter_zero_std else measured
            for sample, advantage in zip(group, values, strict=True):
                target.append(Sample(prompt.token_ids, sample.token_ids, sample.log_probs, advantage))
        return trained, measured

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show and time one phase of a step."""
        self.session.board.enter(name)
        began = time.monotonic()
        yield
        self._durations[name] = time.monotonic() - began

    def timings(
        self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]], total_s: float
    ) -> dict[str, float]:
        """Durations and rates of the step, also told to the status board."""
        prefill = sum(len(prompt.token_ids) for prompt in prompts) * self.layout.train.samples_per_prompt
        decode = sum(len(sample.token_ids) for group in groups for sample in group)
        durations = {name: self._durations[name] for name in ("generate", "train", "weight_sync")}
        samples = self.layout.train.samples_per_step
        self.session.board.count_step(total_s, durations["generate"], prefill, decode, samples)
        return rates(prefill + decode, total_s, durations)

    def save_if_due(self) -> float:
        """Save where the step is one of ``checkpoint.every``; the seconds it took. No room is an event, not an end."""
        every, step = self.layout.checkpoint.every, self.state.step
        if not every or step % every or step == self.layout.train.steps:
            return 0.0
        began = time.monotonic()
        try:
            self.save()
        except NoSpaceError as error:
            self.session.event("checkpoint", f"step {step} was not saved: {error}", step=step)
            log.warning("step %d was not saved: %s", step, error)
        return time.monotonic() - began

    def save(self) -> None:
        """Write a checkpoint of the state after the last whole step, unless there is one.

        Raises:
            NoSpaceError: There is no room.
        """
        step = self.state.step
        if not step or self.checkpoints.has(step):
            return
        self.session.board.enter("saving")
        self.session.stages.show("saving", step=step)
        began = time.monotonic()
        path = self.checkpoints.save(self.state, self.checkpoint_bytes, self.fleet.save)
        text = f"step {step} saved in {time.monotonic() - began:.2f} s"
        self.session.event("checkpoint", text, step=step, path=str(path))
        log.info(text)


def train(session: Session) -> bool:
    """Bring up the roles of the session's layout, train, and end them; returns whether all steps are done."""
    layout, stages, stop = session.layout, session.stages, session.stop
    stages.show("placing", "asking Ray for the bundles")
    fleet = Fleet(layout, Deadlines(), stop.check)
    try:
        fleet.reserve()
        model_path = _prepare_model(session)
        fleet.start(model_path)
        threading.Thread(target=_import_torch, daemon=True).start()
        session.event("roles", "; ".join(role.title for role in fleet.roles), roles=fleet.map())
        _load(fleet, session)
        grpo = Grpo(session, fleet, Codec(model_path))
        grpo.resume()
        log.info("training from step %d to %d", grpo.state.step + 1, layout.train.steps)
        stages.show("training", step=grpo.state.step)
        return grpo.run()
    finally:
        fleet.close()


def _prepare_model(session: Session) -> str:
    """The folder of the learner's model, which may have to be made or downloaded first."""

    def on_progress(words: str, done: float) -> None:
        session.stop.check()
        session.stages.show("loading", words, progress=done)

    session.stages.show("loading", "making the model ready")
    path = resolve_model(session.layout, on_progress)
    session.stop.check()
    return path


def _import_torch() -> None:
    """Import torch in this process while the roles, which take longer, load their models."""
    import torch  # noqa: F401


def _load(fleet: Fleet, session: Session) -> None:
    """Load all roles, showing which of them are ready."""
    states = {role.name: "loading" for role in fleet.roles}

    def on_ready(role: Role) -> None:
        states[role.name] = "ready"
        ready = sum(state == "ready" for state in states.values())
        session.stages.show("loading", f"{ready}/{len(states)} roles", roles=dict(states), progress=ready / len(states))

    session.stages.show("loading", f"0/{len(states)} roles", roles=dict(states), progress=0.0)
    fleet.load(on_ready)
    session.stages.flush()


def connect(stop: Stop) -> None:
    """Connect to the Ray of ``RAY_ADDRESS``.

    Raises:
        RuntimeError: The variable is not set.
        ConnectionError: Nothing answers there.
    """
    import ray

    address = os.environ.get("RAY_ADDRESS")
    if not address:
        raise RuntimeError("RAY_ADDRESS is not set: the trainer joins the Ray of its attempt and starts none itself")
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except SystemExit as signalled:  # Ray's own answer to SIGTERM while it connects
        raise StopRequestedError from signalled
    stop.install()


def run_attempt(attempt: Path) -> int:
    """Run the attempt to its end and return its exit code: 0 all steps done, 1 failed, 143 stopped by signal."""
    import ray

    stop = Stop()
    stop.install()
    session, code = None, 1
    try:
        layout = load_layout(attempt / rundir.LAYOUT).layout
        session = Session(attempt, layout, stop)
        connect(stop)
        code = 0 if train(session) else EXIT_CODE
    except StopRequestedError:
        code = EXIT_CODE
    except Exception as error:  # the outermost edge: every failure becomes an event and an exit code
        log.exception("the attempt failed")
        rundir.log_event(str(attempt), "error", str(error) or type(error).__name__)
    finally:
        if session is not None:
            session.close(code)
        ray.shutdown()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainers.grpo", description="Train with GRPO on Ray.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--attempt", type=Path, metavar="DIR", help="run the attempt in DIR (needs RAY_ADDRESS)")
    what.add_argument("--dry-run", type=Path, metavar="LAYOUT", help="print placement and batch arithmetic of LAYOUT")
    options = parser.parse_args(arguments)
    if options.dry_run is not None:
        print("\n".join(dry_run(load_layout(options.dry_run).layout)))
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stdout)
    log.setLevel(logging.INFO)
    return run_attempt(options.attempt)


if __name__ == "__main__":
    leave(main())
