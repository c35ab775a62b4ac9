"""Samples of agents: each talks to the policy as it likes, says what it earned, and is over.

Takes the place of ``trainers.conversations`` where an environment is an agent. A request waits in a thread until an
engine has answered it, before all prompts that wait; seeds come from step, prompt, sample and turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from trainers.agent_workers import DIED, AgentWorkers
from trainers.chat_endpoint import answers
from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.data.prompts import Prompt, Task
from trainers.data.tasks import EVALUATION_SEED, make_evaluation_task, make_task
from trainers.environments.agent_place import AgentPlace
from trainers.environments.opening import task_of
from trainers.environments.pool import plain_task
from trainers.episodes import Episode, Limits
from trainers.prefetch import OnAnswer
from trainers.rewards.actors import TRIES
from trainers.rewards.workers import Failures
from trainers.roles.calls import POLL_S, Role
from trainers.roles.completions import Completion, derive_seed
from trainers.roles.reward_worker import most_samples
from trainers.roles.sampling import SamplingSettings
from trainers.rollouts import Rollouts
from trainers.session import Session
from trainers.stopping import StopRequestedError
from trainers.turns import SamplesOfPrompts

NEVER_ASKED = "it ended without an answer of the policy: there is nothing to train"


class AgentEpisodes:
    """Has agents play the samples of prompts; takes the place of ``Rollouts`` before the loop's look ahead.

    Args:
        turns: What agents need.
        rollouts: What samples an answer.
        seed: What tasks are given: the run's, or the evaluation's.
    """

    def __init__(self, turns: AgentTurns, rollouts: Rollouts, seed: int) -> None:
        self._turns, self._rollouts, self._seed = turns, rollouts, seed
        self._changed = threading.Condition()

    @staticmethod
    def as_asked(prompt: Prompt) -> Prompt:
        """What ``submit`` takes: the whole prompt, because agents want to know all of it."""
        return prompt

    def submit(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingSettings,
        on_answer: OnAnswer | None = None,  # noqa: ARG002 - rewards come with the samples
        *,
        drawn: int = 0,
        first: bool = False,  # noqa: ARG002 - what agents ask comes first anyway
    ) -> SamplesOfPrompts:
        """Have every prompt played in its turn; arguments as for ``Rollouts.submit``."""
        count = sampling.samples_per_prompt
        episodes = SamplesOfPrompts.begun(len(prompts), count)
        for place, prompt in enumerate(prompts):
            own = replace(sampling, seed=derive_seed(sampling.seed, drawn + place))
            for number in range(count):
                self._turns.threads.submit(self._play, episodes, place, number, prompt, own)
        return episodes

    def collect(self, episodes: SamplesOfPrompts, check: Callable[[], None]) -> list[list[Completion]]:
        """The samples of each prompt, when all are there; arguments and errors as for ``Rollouts``."""
        while True:
            check()
            with self._changed:
                if self._changed.wait_for(lambda: episodes.failure or not episodes.left, POLL_S):
                    break
        if episodes.failure is not None:
            raise episodes.failure
        return episodes.whole()

    def generate(
        self, prompts: Sequence[Prompt], sampling: SamplingSettings, check: Callable[[], None], drawn: int = 0
    ) -> list[list[Completion]]:
        """Have every prompt played now."""
        return self.collect(self.submit(prompts, sampling, drawn=drawn), check)

    def _play(
        self, episodes: SamplesOfPrompts, place: int, number: int, prompt: Prompt, sampling: SamplingSettings
    ) -> None:
        """Play one sample, in a thread of its own."""

        def sample(token_ids: list[int], settings: SamplingSettings) -> Completion:
            try:
                ticket = self._rollouts.submit_each([(token_ids, settings)], first=True)
                [[found]] = self._rollouts.collect(ticket, self._turns.check)
            except BaseException as error:
                self._fail(episodes, error)
                raise
            return found

        try:
            if episodes.failure is None:
                found = self._turns.play(place, number, prompt, sampling, self._seed, sample)
                with self._changed:
                    episodes.take(place, number, found)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the outermost edge of a thread: whoever collects is told
            self._fail(episodes, error)

    def _fail(self, episodes: SamplesOfPrompts, error: BaseException) -> None:
        with self._changed:
            episodes.failure = episodes.failure or error
            self._changed.notify_all()


class AgentTurns:
    """What stands between the data, the engines and the agents of a run.

    Args:
        session: The attempt.
        codec: The model's tokenizer.
        workers: Reward workers, loaded, beside which agents run; none: beside the trainer.

    Attributes:
        threads: One for each episode that is under way.

    Raises:
        ValueError: The agent cannot be imported.
    """

    def __init__(self, session: Session, codec: Codec, workers: Sequence[Role] = ()) -> None:
        layout = session.layout
        self._layout, self._codec, name = layout, codec, layout.data.environment
        self._renderer = Renderer(codec, layout.data.chat, layout.data.system)
        self._limits = Limits(layout.data.max_turns, layout.lengths.prompt)
        self._limit_s = layout.deadlines.episode_s
        self._failures = Failures("environment", f"the agent {name} failed, and such samples earn 0", session.event)
        self._place: AgentWorkers | AgentPlace
        if workers:
            self._place = AgentWorkers(workers, most_samples(layout), session.event, self.check)
        else:
            self._place = AgentPlace(name)
        self._is_closed = False
        self.threads = ThreadPoolExecutor(layout.data.max_episodes, thread_name_prefix="agent")

    def task(self) -> Task:
        """The prompts of training, as the agents get them."""
        return make_task(self._layout, self._codec)

    def evaluation_task(self) -> Task:
        """The prompts of the evaluation set, as the agents get them."""
        return make_evaluation_task(self._layout, self._codec)

    def conversations(self, rollouts: Rollouts, seed: int) -> AgentEpisodes:
        """What has the prompts of a task played; ``seed`` is what tasks are given."""
        return AgentEpisodes(self, rollouts, seed)

    def evaluation(self, rollouts: Rollouts) -> AgentEpisodes:
        """What has the prompts of an evaluation played."""
        return self.conversations(rollouts, EVALUATION_SEED)

    def play(
        self,
        place: int,
        number: int,
        prompt: Prompt,
        sampling: SamplingSettings,
        seed: int,
        sample: Callable[[list[int], SamplingSettings], Completion],
    ) -> Completion:
        """One sample from its beginning to its end.

        Args:
            place: Number of its prompt in the call.
            number: Of the sample.
            prompt: What it is about.
            sampling: How; its seed is the prompt's.
            seed: What the task's comes from.
            sample: Has an engine go on.
        """
        own_seed = derive_seed(sampling.seed, number)
        question = {"task": plain_task(task_of(prompt, seed)), "seed": own_seed, "limit_s": self._limit_s}
        for _ in range(TRIES):
            self.check()
            episode = Episode(number, prompt.is_chat, sampling, self._limits, self._codec, self._renderer, sample)
            found = self._place.play(question, answers(episode, lambda token: self._codec.transcript([token])))
            if found.get("error") != DIED:
                break
        error = found.get("error") or ("" if episode.has_answers else NEVER_ASKED)
        failed = bool(error) and not (episode.is_cut and episode.has_answers)  # else the policy has said too much
        if failed:
            self._failures.tell(error)
        return episode.over(place, found.get("reward", 0.0), failed=failed)

    def check(self) -> None:
        """Is anybody still there to be answered?

        Raises:
            StopRequestedError: There is not.
        """
        if self._is_closed:
            raise StopRequestedError

    def close(self) -> None:
        """End the agents and what serves them."""
        self._is_closed = True
        self.threads.shutdown(wait=False, cancel_futures=True)
        self._place.close()
