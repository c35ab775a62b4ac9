"""Generation without barriers: with long-tailed answers, engines are full until the tail of a step.

The engines are real down to vLLM's ``LLMEngine``, for which a stand-in counts its steps: time is steps of decoding.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from trainers import rollouts as rollouts_module
from trainers.data.prompts import Prompt
from trainers.data.stops import Stops
from trainers.lookahead import Lookahead
from trainers.roles.calls import Role
from trainers.roles.sampling import SamplingSettings
from trainers.roles.vllm_samples import VllmSamples
from trainers.rollouts import SPARE_FRACTION, Rollouts

if TYPE_CHECKING:
    from trainers.roles.completions import Request, Streamed

pytestmark = pytest.mark.trainers

STEP_S = 0.001
"""A step of decoding takes time, as on a card; were it none, the turns of threads would be what is measured."""


@dataclass(frozen=True)
class Load:
    """What engines are asked for: answers of log-normal lengths, as those of reasoning models are.

    Attributes:
        median: Tokens of the answer in the middle.
        sigma: Deviation of the logarithm of an answer's tokens.
        most: The limit of an answer.
        ahead: Steps that engines may be ahead.
    """

    slots: int = 32
    engines: int = 2
    prompts: int = 64
    samples: int = 8
    steps: int = 12
    median: float = 12.0
    sigma: float = 1.0
    most: int = 200
    ahead: int = 0

    def length_of(self, seed: int) -> int:
        """Tokens of the sample with this seed."""
        return max(1, min(self.most, round(random.Random(seed).lognormvariate(0.0, self.sigma) * self.median)))


class Decoder:
    """vLLM's engine with slots and a queue: each step gives every slot a token.

    Attributes:
        busy: Of each step, how many slots had a sample.
        full: The sum of it, and the steps, while prompts waited for an engine.
    """

    def __init__(self, load: Load, waiting: Callable[[], int]) -> None:
        self.requests: dict[str, int] = {}
        self.busy: list[int] = []
        self.full = [0, 0]
        self.load, self.waiting = load, waiting
        self.renderer = SimpleNamespace(render_cmpl=lambda prompts: prompts)

    def add_request(self, name: str, _: Any, parameters: Any) -> None:
        self.requests[name] = self.load.length_of(parameters.seed)

    def abort_request(self, names: list[str]) -> None:
        for name in names:
            del self.requests[name]

    def step(self) -> list[Any]:
        running = list(self.requests)[: self.load.slots]
        self.busy.append(len(running))
        if self.waiting():
            self.full[0] += len(running)
            self.full[1] += 1
        for name in running:
            self.requests[name] -= 1
        over = [name for name in running if not self.requests[name]]
        self.abort_request(over)
        told = SimpleNamespace(
            token_ids=[5],
            logprobs=[{5: SimpleNamespace(logprob=-1.0)}],
            weight_versions=[SimpleNamespace(version="0")],
            routed_experts=None,
        )
        return [SimpleNamespace(request_id=n, outputs=[told], finished=True, prompt_token_ids=[1]) for n in over]


class Turnstile:
    """Lets the engines step side by side: none is a round ahead of another that has work."""

    def __init__(self) -> None:
        self.changed, self.rounds = threading.Condition(), dict[int, int]()

    def join(self, who: int) -> None:
        with self.changed:
            self.rounds[who] = max(self.rounds.values(), default=0)

    def leave(self, who: int) -> None:
        with self.changed:
            self.rounds.pop(who, None)
            self.changed.notify_all()

    def step(self, who: int) -> int:
        with self.changed:
            self.rounds[who] += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.rounds[who] <= min(self.rounds.values()) + 1, 20.0)
        time.sleep(STEP_S)
        return 0


class Engine:
    """The actor's side of ``stream``, without Ray."""

    def __init__(self, number: int, turnstile: Turnstile, load: Load, waiting: Callable[[], int]) -> None:
        self.number, self.turnstile, self.decoder = number, turnstile, Decoder(load, waiting)
        self.samples = VllmSamples(self.decoder, load.slots)
        self.stream = SimpleNamespace(remote=lambda requests, low: lambda: self.run(requests, low))

    def run(self, requests: list[Request], low: int) -> Streamed:
        self.turnstile.join(self.number)
        for request in requests:
            self.samples.add(request, {"prompt_token_ids": request.prompt}, Stops((), (), ""), "")
        found = self.samples.run(low, lambda: self.turnstile.step(self.number))
        self.turnstile.leave(self.number)
        return found


@dataclass(frozen=True)
class Found:
    """What a run came to.

    Attributes:
        occupancy: Share of the slots that had a sample while prompts waited.
        steps: Steps of decoding that the engine took that was at work longest.
        ideal: Steps that it would take, were no slot ever idle.
    """

    occupancy: float
    steps: int
    ideal: float


def simulate(load: Load) -> Found:
    """A run whose learner takes no time and whose weights come in flight."""
    turnstile = Turnstile()
    engines = [Engine(number, turnstile, load, lambda: rollouts.dispatch.waiting) for number in range(load.engines)]
    roles = [Role(f"engine {one.number}", one, kind="engine") for one in engines]
    spare = max(load.samples, int(SPARE_FRACTION * load.slots))
    rollouts = Rollouts(roles, load.prompts, 60.0, ahead=load.ahead, slots=load.slots, spare=spare)
    task = SimpleNamespace(
        prompts=lambda start, count: [Prompt((number,), "", "") for number in range(start, start + count)]
    )

    def sampling(step: int) -> SamplingSettings:
        return SamplingSettings(1.0, load.most, load.samples, (2,), step)

    lookahead = Lookahead(task, rollouts, sampling, load.prompts, load.ahead, load.steps)
    for step in range(1, load.steps + 1):
        _, groups = lookahead.collect(step, lambda: None)
        assert [len(group) for group in groups] == [load.samples] * load.prompts
    rollouts.close()
    decoders = [one.decoder for one in engines]
    full, steps = (sum(decoder.full[part] for decoder in decoders) for part in (0, 1))
    tokens = sum(sum(decoder.busy) for decoder in decoders)
    longest = max(len(decoder.busy) for decoder in decoders)
    return Found(full / max(1, steps) / load.slots, longest, tokens / (load.slots * load.engines))


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts_module, "call_all", lambda calls, deadline_s, doing: [call() for _, call in calls])


def test_slots_are_busy_until_the_tail_of_a_step() -> None:
    """That is as long as prompts wait: what is left then is in an engine, and nobody else's to work on."""
    found = simulate(Load(steps=3))
    print(found)
    assert found.occupancy >= 0.9


def test_one_step_ahead_takes_hardly_longer_than_the_ideal() -> None:
    found = simulate(Load(ahead=1))
    print(found)
    assert found.steps <= 1.15 * found.ideal
