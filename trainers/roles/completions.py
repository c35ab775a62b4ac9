"""What engines are asked for and what they answer: prompts, samples with their log-probabilities, and seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainers.data.prompts import EnginePrompt
    from trainers.environments.outcome import Outcome
    from trainers.roles.sampling import SamplingSettings

Part = Literal["weights", "cache"]
"""What of an engine wakes up at once."""


@dataclass(frozen=True)
class Completion:
    """One sample.

    Attributes:
        prompt_index: Which of the prompts of the call it completes.
        token_ids: Sampled tokens, with the stop token if there was one.
        log_probs: Log-probability of each token in the distribution it was sampled from (at temperature).
        finish_reason: ``stop``: the last token is a stop token or completes a stop text; ``length``: it was cut.
        weight_version: Version of the weights that sampled it; the first of them where they changed on the way.
        newest_version: Version of the weights that sampled its last token; -1: ``weight_version`` sampled all of it.
        staleness: Versions that the learner's weights were ahead of that when training on it began.
        response_mask: Which tokens the policy sampled; empty: all. What an environment said has log-probability 0.
        outcome: What an environment made of it; None where there is none.
        routes: [prompt + tokens - 1, L, K], the experts that each token was sent to, see
            ``trainers.roles.router_replay``; the last one was never read. None: nobody noted them.
        prompt_ids: What it answers where that is not the prompt of its call: an agent wrote it.
        earlier: Sequences of the same sample before this one: an agent began its chat anew. Empty ones are left out.
    """

    prompt_index: int
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]
    weight_version: int
    newest_version: int = -1
    staleness: int = 0
    response_mask: tuple[bool, ...] = ()
    outcome: Outcome | None = None
    routes: NDArray[np.integer[Any]] | None = field(default=None, compare=False, repr=False)
    prompt_ids: tuple[int, ...] = ()
    earlier: tuple[Completion, ...] = ()

    def asked(self, prompt_ids: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens that it answers, where ``prompt_ids`` are those of its call."""
        return self.prompt_ids or prompt_ids

    @property
    def sequences(self) -> tuple[Completion, ...]:
        """What is trained of the sample: itself, most often; nothing where an agent never asked the policy."""
        return (*self.earlier, self) if self.token_ids else self.earlier

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the policy sampled, in all sequences."""
        own = sum(self.response_mask) if self.response_mask else len(self.token_ids)
        return own + sum(one.sampled_tokens for one in self.earlier)


@dataclass(frozen=True)
class Request:
    """One prompt for an engine that samples without barriers.

    Attributes:
        key: By which its answer is known.
        prompt: As engines take it.
        sampling: How, with the prompt's own seed; a sample's is that and its number.
    """

    key: int
    prompt: EnginePrompt
    sampling: SamplingSettings


@dataclass
class Streamed:
    """What came of one call of ``EngineActor.stream``.

    Attributes:
        answers: The samples of each prompt that is done, by its key.
        left: Samples that are still under way.
        busy_slot_s: Seconds that samples were worked on, added up over samples.
        span_s: Seconds that any was.
        waited_s: Seconds that samples were in the engine and not worked on, added up over samples.
        cache_share: Largest share of the engine's KV cache that was in use; 0 where it has none that can be full.
        preempted: Samples that were put off because the cache was full.
    """

    answers: dict[int, list[Completion]] = field(default_factory=dict)
    left: int = 0
    busy_slot_s: float = 0.0
    span_s: float = 0.0
    waited_s: float = 0.0
    cache_share: float = 0.0
    preempted: int = 0


def grouped(completions: Iterable[Completion], num_prompts: int) -> list[list[Completion]]:
    """The completions of each of the prompts of one call, in their order."""
    groups: list[list[Completion]] = [[] for _ in range(num_prompts)]
    for completion in completions:
        groups[completion.prompt_index].append(completion)
    return groups


def derive_seed(*parts: int) -> int:
    """Return a 48-bit seed from ``parts``: neighbouring parts give unrelated seeds, on every machine the same."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest(), "big")
