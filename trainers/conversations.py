"""Samples of several turns: an engine's answer, what an environment says to it, the next answer, until it is done.

A sample that waits for its environment is in no engine. Its next turn is a prompt of its own, before all that wait, so
engines go on with whatever else there is; its seed comes from step, prompt, sample and turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from rltui.layout.schema import Layout
from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.data.prompts import EnginePrompt, Prompt
from trainers.environments.opening import task_of
from trainers.environments.outcome import Outcome
from trainers.environments.pool import Environments, Episode, EpisodeStep
from trainers.prefetch import OnAnswer
from trainers.roles.calls import POLL_S
from trainers.roles.completions import Completion, derive_seed, grouped
from trainers.roles.sampling import SamplingSettings
from trainers.rollouts import Rollouts, Ticket
from trainers.turns import SamplesOfPrompts, Turns


@dataclass(eq=False)
class Conversation:
    """One sample on its way.

    Attributes:
        talk: The prompts that it belongs to.
        place: Number of its prompt there.
        number: Of the sample.
        prompt: What it answers.
        sampling: How; its seed is the prompt's, its limit that of all turns together.
        play: The sample as its environment knows it.
        turns: Its tokens.
        reward: What it earned so far.
    """

    talk: Talk
    place: int
    number: int
    prompt: Prompt
    sampling: SamplingSettings
    play: Episode
    turns: Turns
    reward: float = 0.0

    def answer(self, turn: Completion, text: str) -> None:
        """Append what the policy sampled."""
        self.turns.answer(turn)
        self.play.answers.append(text)

    def next_turn(self) -> tuple[EnginePrompt, SamplingSettings]:
        """What an engine is asked for the next answer."""
        seed = derive_seed(self.sampling.seed, self.number, len(self.play.answers))
        settings = replace(self.sampling, seed=seed, samples_per_prompt=1, max_tokens=self.turns.room)
        return self.turns.token_ids, settings

    def over(self, *, failed: bool, cut: bool) -> Completion:
        """End the conversation: all of its turns as one sample, with what the environment gave for it."""
        assert self.turns.said is not None
        outcome = Outcome(0.0 if failed else self.reward, len(self.play.answers), failed)
        reason = "length" if cut else self.turns.said.finish_reason
        return self.turns.whole(prompt_index=self.place, finish_reason=reason, outcome=outcome)


@dataclass(eq=False)
class Talk(SamplesOfPrompts):
    """What ``Conversations.submit`` gives and ``Conversations.collect`` takes.

    Attributes:
        busy: Samples that an engine or an environment is at.
        ready: Samples that wait for their next turn.
        parts: What engines were asked.
    """

    busy: int = 0
    ready: list[Conversation] = field(default_factory=list, repr=False)
    parts: list[Ticket] = field(default_factory=list, repr=False)


class Conversations:
    """Has prompts answered in several turns; takes the place of ``Rollouts`` before the loop's look ahead.

    Args:
        rollouts: What samples one turn.
        environments: What answers.
        codec: The model's tokenizer.
        renderer: Writes what environments say.
        layout: The layout.
        seed: What environments draw from: the run's, or the evaluation's.
    """

    def __init__(
        self,
        rollouts: Rollouts,
        environments: Environments,
        codec: Codec,
        renderer: Renderer,
        layout: Layout,
        seed: int,
    ) -> None:
        self._rollouts, self._environments = rollouts, environments
        self._codec, self._renderer = codec, renderer
        self._seed, self._max_turns = seed, layout.data.max_turns
        # an engine that works in batches gets a turn of all samples of a step at once: batches then repeat themselves
        self._by_turn = layout.roles.rollout.engine == "hf"
        self._changed = threading.Condition(threading.RLock())

    @staticmethod
    def as_asked(prompt: Prompt) -> Prompt:
        """What ``submit`` takes: the whole prompt, because environments want to know all of it."""
        return prompt

    def submit(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingSettings,
        on_answer: OnAnswer | None = None,  # noqa: ARG002 - rewards come with the samples
        *,
        drawn: int = 0,
        first: bool = False,
    ) -> Talk:
        """Have every prompt sampled in its turn; arguments as for ``Rollouts.submit``."""
        talk = Talk.begun(len(prompts), sampling.samples_per_prompt)
        talk.busy = talk.left
        begun = [list(self._begin(talk, place, prompts[place], sampling, drawn)) for place in range(len(prompts))]

        def on_first(start: int, number: int, completions: Sequence[Completion]) -> None:
            groups = zip(begun[start : start + number], grouped(completions, number), strict=True)
            self._take([pair for group, said in groups for pair in zip(group, said, strict=True)])

        part = self._rollouts.submit(
            [prompt.request for prompt in prompts], sampling, on_first, drawn=drawn, first=first
        )
        with self._changed:
            talk.parts.append(part)
        return talk

    def collect(self, talk: Talk, check: Callable[[], None]) -> list[list[Completion]]:
        """The samples of each prompt of ``talk``, when all are there; arguments and errors as for ``Rollouts``."""
        while True:
            check()
            with self._changed:
                failed = next((part.failure for part in talk.parts if part.failure), talk.failure)
                if failed is not None:
                    raise failed
                if self._changed.wait_for(lambda: talk.failure or not talk.left, POLL_S) and not talk.failure:
                    break
        for part in talk.parts:
            self._rollouts.collect(part, check)  # all there; it counts what waits to be collected
        return talk.whole()

    def generate(
        self, prompts: Sequence[Prompt], sampling: SamplingSettings, check: Callable[[], None], drawn: int = 0
    ) -> list[list[Completion]]:
        """Sample every prompt now, before what was submitted for steps to come."""
        return self.collect(self.submit(prompts, sampling, drawn=drawn, first=True), check)

    def _begin(
        self, talk: Talk, place: int, prompt: Prompt, sampling: SamplingSettings, drawn: int
    ) -> Iterator[Conversation]:
        own, task = replace(sampling, seed=derive_seed(sampling.seed, drawn + place)), task_of(prompt, self._seed)
        for number in range(sampling.samples_per_prompt):
            play, turns = Episode(next(self._environments.keys), task), Turns(prompt.token_ids, own.max_tokens)
            yield Conversation(talk, place, number, prompt, own, play, turns)

    def _take(self, turns: Sequence[tuple[Conversation, Completion]]) -> None:
        """Give answers of engines to the environments."""
        for conversation, turn in turns:
            conversation.answer(turn, self._codec.decode(turn.token_ids))
            last = len(conversation.play.answers) >= self._max_turns or conversation.turns.room < 1
            try:
                played = self._environments.step(conversation.play, last)
            except RuntimeError as error:  # closed, when nobody will ask
                self._fail(conversation.talk, error)
                return
            played.add_done_callback(partial(self._played, conversation, last))

    def _played(self, conversation: Conversation, last: bool, played: Future[EpisodeStep]) -> None:
        """Go on with a sample that its environment has answered."""
        talk = conversation.talk
        try:
            found = played.result()
            with self._changed:
                talk.busy -= 1
                self._go_on(conversation, last, found)
                if talk.ready and not (self._by_turn and talk.busy):
                    self._next_turns(talk)
                self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the outermost edge of a thread: whoever collects is told
            self._fail(talk, error)

    def _go_on(self, conversation: Conversation, last: bool, found: EpisodeStep) -> None:
        """Finish a sample, or let it hear what its environment says and wait for its next turn."""
        conversation.reward += found.reward
        if found.failed or found.done or last:
            self._finish(conversation, failed=found.failed)
            return
        last_token, is_chat = conversation.turns.token_ids[-1], conversation.prompt.is_chat
        try:
            token_ids = self._renderer.following(found.messages, is_chat, last_token)
        except ValueError as error:
            self._environments.forget(conversation.play)
            self._environments.tell(str(error))
            self._finish(conversation, failed=True)
            return
        if len(token_ids) >= conversation.turns.room:
            self._environments.forget(conversation.play)
            self._finish(conversation, cut=True)
            return
        conversation.turns.hear(token_ids)
        conversation.talk.ready.append(conversation)

    def _next_turns(self, talk: Talk) -> None:
        """Have the engines begin the next turn of the samples that wait for it, in an order that repeats itself."""
        begun, talk.ready = sorted(talk.ready, key=lambda one: (one.place, one.number)), []
        talk.busy += len(begun)

        def on_answer(start: int, number: int, completions: Sequence[Completion]) -> None:
            self._take(list(zip(begun[start : start + number], completions, strict=True)))

        talk.parts.append(self._rollouts.submit_each([one.next_turn() for one in begun], on_answer, first=True))

    def _finish(self, conversation: Conversation, *, failed: bool = False, cut: bool = False) -> None:
        sample = conversation.over(failed=failed, cut=cut)
        conversation.talk.take(conversation.place, conversation.number, sample)

    def _fail(self, talk: Talk, error: BaseException) -> None:
        with self._changed:
            talk.failure = error
            self._changed.notify_all()
