"""Generation without barriers: with long-tailed answers, engines are full until the tail of a step.

The engines are real down to vLLM's ``LLMEngine``, for which a stand-in counts its steps: time is steps of decoding.
"""

from __future__ import annotations

import random
import threading
import time
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
    from trainers.roles.engine import Request, Streamed

pytestmark = pytest.mark.trainers

SLOTS, ENGINES, PROMPTS, SAMPLES, STEPS = 32, 2, 64, 8, 12
STEP_S = 0.001
"""A step of decoding takes time, as on a card; were it none, the turns of threads would be what is measured."""
MEDIAN_TOKENS, SIGMA, MOST_TOKENS = 12.0, 1.0, 200


def length_of(seed: int) -> int:
    """Log-normal, as the lengths of answers of reasoning models are."""
    return max(1, min(MOST_TOKENS, round(random.Random(seed).lognormvariate(0.0, SIGMA) * MEDIAN_TOKENS)))


class Decoder:
    """vLLM's engine with ``SLOTS`` slots and a queue: each step gives every slot a token."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.busy: list[int] = []
        self.renderer = SimpleNamespace(render_cmpl=lambda prompts: prompts)

    def add_request(self, name: str, _: Any, parameters: Any) -> None:
        self.requests[name] = length_of(parameters.seed)

    def abort_request(self, names: list[str]) -> None:
        for name in names:
            del self.requests[name]

    def step(self) -> list[Any]:
        running = list(self.requests)[:SLOTS]
        self.busy.append(len(running))
        for name in running:
            self.requests[name] -= 1
        over = [name for name in running if not self.requests[name]]
        self.abort_request(over)
        told = SimpleNamespace(
            token_ids=[5], logprobs=[{5: SimpleNamespace(logprob=-1.0)}], weight_versions=[SimpleNamespace(version="0")]
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

    def step(self, who: int) -> None:
        with self.changed:
            self.rounds[who] += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.rounds[who] <= min(self.rounds.values()) + 1, 20.0)
        time.sleep(STEP_S)


class Engine:
    """The actor's side of ``stream``, without Ray."""

    def __init__(self, number: int, turnstile: Turnstile) -> None:
        self.number, self.turnstile, self.decoder = number, turnstile, Decoder()
        self.samples = VllmSamples(self.decoder, SLOTS)
        self.stream = SimpleNamespace(remote=lambda requests, low: lambda: self.run(requests, low))

    def run(self, requests: list[Request], low: int) -> Streamed:
        self.turnstile.join(self.number)
        for request in requests:
            self.samples.add(request, {"prompt_token_ids": request.prompt}, Stops((), (), ""), "")
        found = self.samples.run(low, lambda: self.turnstile.step(self.number))
        self.turnstile.leave(self.number)
        return found


def simulate(ahead: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Engine], int]:
    """Engines after a run whose learner takes no time and whose weights come in flight; and tokens that they made."""
    monkeypatch.setattr(rollouts_module, "call_all", lambda calls, deadline_s, doing: [call() for _, call in calls])
    turnstile = Turnstile()
    engines = [Engine(number, turnstile) for number in range(ENGINES)]
    roles = [Role(f"engine {one.number}", one, kind="engine") for one in engines]
    rollouts = Rollouts(roles, PROMPTS, 60.0, ahead=ahead, slots=SLOTS, spare=int(SPARE_FRACTION * SLOTS))
    task = SimpleNamespace(
        prompts=lambda start, count: [Prompt((number,), "", "") for number in range(start, start + count)]
    )
    lookahead = Lookahead(
        task, rollouts, lambda step: SamplingSettings(1.0, MOST_TOKENS, SAMPLES, (2,), step), PROMPTS, ahead, STEPS
    )
    for step in range(1, STEPS + 1):
        _, groups = lookahead.collect(step, lambda: None)
        assert [len(group) for group in groups] == [SAMPLES] * PROMPTS
    rollouts.close()
    return engines, sum(sum(one.decoder.busy) for one in engines)


def test_slots_are_busy_until_the_tail_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_streaming.STEPS", 1)
    engines, tokens = simulate(0, monkeypatch)
    for one in engines:
        busy = one.decoder.busy
        before_the_tail = (
            busy[: max(1, len(busy) - MOST_TOKENS)] if len(busy) > 2 * MOST_TOKENS else busy[: len(busy) // 2]
        )
        assert sum(before_the_tail) >= 0.9 * SLOTS * len(before_the_tail)
    assert tokens == sum(sum(one.decoder.busy) for one in engines)


def test_one_step_ahead_takes_hardly_longer_than_the_ideal(monkeypatch: pytest.MonkeyPatch) -> None:
    engines, tokens = simulate(1, monkeypatch)
    took, ideal = max(len(one.decoder.busy) for one in engines), tokens / (SLOTS * ENGINES)
    print(f"{took} steps of decoding, ideal {ideal:.0f}: {took / ideal:.3f}")
    assert took <= 1.15 * ideal
