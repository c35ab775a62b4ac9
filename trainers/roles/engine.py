"""The rollout engine: one Ray actor that samples completions and takes new weights from the learner.

``EngineActor`` is what the training loop talks to. It hides which implementation runs (vLLM or transformers), counts
the weight version, and refuses to generate from half-received weights.

Log-probabilities are those of the distribution that was sampled from: log_softmax(logits / temperature) in float32, at
the sampled token; where sampling is truncated, less the log of the kept tokens' share. The learner must divide its
logits by the same temperature before it compares. Greedy samples have those of temperature 1; nothing is trained on
them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trainers.roles.card import importing
from trainers.roles.endings import resident_gib
from trainers.roles.meter import measured
from trainers.roles.model_lock import ModelLock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rltui.layout.schema import Lengths, Rollout
    from trainers.data.prompts import EnginePrompt
    from trainers.environments.outcome import Outcome
    from trainers.roles.sampling import SamplingSettings
    from trainers.weights import ParameterMeta, WeightGroup

Part = Literal["weights", "cache"]
"""What of an engine wakes up at once."""

WEIGHTS_GROUP = "weights"
"""Ray's concurrency group for calls that bring weights while the engine samples."""


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


class Engine(Protocol):
    """What an implementation must do; its constructor loads the model."""

    def stream(self, requests: Sequence[Request], low: int, weight_version: Callable[[], int]) -> Streamed:
        """Take ``requests`` in, and sample them and what is under way until some of it is done.

        Args:
            requests: Further prompts.
            low: It may return when no more samples are under way, 0: when any prompt is done; an engine that cannot
                take in prompts meanwhile ends all it can work on at once.
            weight_version: Called before each decoding step; new weights may come while it lasts, and it returns the
                version that is there then.
        """

    def abandon(self) -> None:
        """Forget what is under way."""

    def join_weight_group(self, group: WeightGroup, rank_offset: int) -> None:
        """Join ``group`` as ranks ``rank_offset`` and, with tensor parallelism, those after it; blocks."""

    def receive_weights(self, manifest: Sequence[ParameterMeta], version: int) -> None:
        """Take the parameters of ``manifest`` from the learner into the model; blocks until they are in use."""

    def sleep(self) -> None:
        """Free the card: weights, which the learner will send again, and the KV cache."""

    def wake(self, part: Part) -> None:
        """Have memory for ``part`` again: first for the weights; for the cache when the learner's weights came."""


class EngineActor:
    """A rollout engine; the caller makes it a Ray actor.

    Args:
        rollout: The rollout role of the layout.
        model_path: Local folder (or Hugging Face name) of the initial weights, which count as version 0.
        lengths: Token limits of the layout.
        index: Number of this engine.
    """

    key = "roles.rollout"
    """Where a layout says what this engine is like."""

    def __init__(self, rollout: Rollout, model_path: str, lengths: Lengths, index: int) -> None:
        self._rollout = rollout
        self._model_path = model_path
        self._lengths = lengths
        self._index = index
        self._engine: Engine | None = None
        self._weight_version = 0
        self._unusable = ""
        self._kept = Streamed()
        self._model_lock = ModelLock()
        self._asleep: set[Part] = set()
        self._has_weights = True

    @measured("load")
    def load(self) -> float:
        """Load the model, once; returns the seconds that it took, imports included.

        Raises:
            ModuleNotFoundError: ``roles.rollout.engine`` is vllm and vLLM is not installed.
            ValueError: The engine cannot run this rollout role.
        """
        if self._engine is not None:
            raise RuntimeError(f"engine {self._index} is loaded already")
        started = time.monotonic()
        made = _engine_class(self._rollout.engine, self._index, self.key)
        self._engine = made(self._rollout, self._model_path, self._lengths, self._index)
        return time.monotonic() - started

    @measured("generate")
    def generate(self, prompts: list[EnginePrompt], sampling: SamplingSettings) -> list[Completion]:
        """Sample ``samples_per_prompt`` completions of each prompt (token ids), all of the first prompt first.

        Raises:
            ValueError: A prompt is empty or too long for the layout's token limits.
            RuntimeError: The engine is not loaded, sleeps, or holds half-received weights.
        """
        check_lengths(prompts, sampling.max_tokens, self._lengths.prompt + self._lengths.response)
        if not prompts:
            return []
        seeds = (derive_seed(sampling.seed, number) for number in range(len(prompts)))
        # other keys than those of ``stream``, whose answers stay here until it is called
        asked = [
            Request(-1 - n, prompt, replace(sampling, seed=seed))
            for n, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
        ]
        left, groups = {request.key for request in asked}, dict[int, list[Completion]]()
        while left:
            found = self._stream(asked, 0)
            answers = found.answers
            groups |= {key: samples for key, samples in answers.items() if key < 0}
            self._kept.answers |= {key: samples for key, samples in answers.items() if key >= 0}
            self._kept.left = found.left
            asked, left = [], left - answers.keys()
        return [replace(one, prompt_index=n) for n in range(len(prompts)) for one in groups[-1 - n]]

    @measured("generate")
    def stream(self, requests: list[Request], low: int) -> Streamed:
        """Take ``requests`` in beside what is under way, and sample until some is done; see ``Engine.stream``.

        Raises:
            ValueError: A prompt is empty or too long for the layout's token limits; all that was under way is lost.
            RuntimeError: The engine is not loaded, sleeps, or holds half-received weights.
        """
        limit = self._lengths.prompt + self._lengths.response
        for request in requests:
            check_lengths([request.prompt], request.sampling.max_tokens, limit)
        kept, self._kept = self._kept, Streamed()
        if kept.answers and not requests:
            return kept
        found = self._stream(requests, low)
        return replace(found, answers=kept.answers | found.answers)

    def _stream(self, requests: Sequence[Request], low: int) -> Streamed:
        with self._model_lock.sampling():  # weights that are just coming in are whole then
            engine = self._awake()
            try:
                return engine.stream(requests, low, self._version_now)
            except BaseException:
                engine.abandon()
                raise

    def _version_now(self) -> int:
        """The weights' version, when those that wait to come in have done so."""
        self._model_lock.give_way(lambda: not self._unusable)
        return self._weight_version

    def join_weight_group(self, group: WeightGroup, rank_offset: int) -> None:
        """Join the weight transfer group; blocks until all ranks have joined.

        Args:
            group: Where to meet.
            rank_offset: Rank of this engine's first worker, 1 + index * tensor_parallel.

        Raises:
            WeightTransferError: Some rank did not come in time.
        """
        with self._model_lock.interrupting():
            self._loaded().join_weight_group(group, rank_offset)

    @measured("weight sync")
    def receive_weights(self, manifest: list[ParameterMeta], version: int) -> int:
        """Take new weights from the learner, which must send at the same time; blocks until they are in use.

        Where it is called in a thread of its own while the engine samples, sampling goes on with the new weights.

        Args:
            manifest: What the learner sends, in its order.
            version: Version of these weights; the learner's must be the same.

        Returns:
            ``version``, as the acknowledgement that all later completions are sampled with it.

        Raises:
            WeightTransferError: The weights did not come, or not as announced. The engine then refuses to generate
                until a later transfer succeeds.
        """
        engine = self._loaded()
        if "weights" in self._asleep:
            raise RuntimeError(f"engine {self._index} sleeps: it has no memory for weights")
        with self._model_lock.interrupting():
            self._unusable = f"engine {self._index} may hold parts of weight version {version}; send it a whole one"
            engine.receive_weights(manifest, version)
            self._unusable, self._has_weights = "", True
            self._weight_version = version
        return version

    def sleep(self) -> None:
        """Free the card for the roles that share it, as far as the engine's kind can; the weights are gone then.

        A process keeps its CUDA context and graphs. One that sleeps already goes on sleeping.
        """
        engine = self._ready()
        if not self._asleep:
            engine.sleep()
        self._asleep, self._has_weights = {"weights", "cache"}, False

    @measured("wake-up")
    def wake(self, part: Part) -> None:
        """Take memory for ``part`` again: for ``weights`` before the learner sends them, for the ``cache`` after it.

        That the two are apart keeps the peak low: while weights travel, the learner holds a bucket and gathered layers.
        What is awake stays as it is.
        """
        if part in self._asleep:
            self._ready().wake(part)
            self._asleep.remove(part)

    def describe(self) -> dict[str, Any]:
        """Return ``pid``, ``host``, ``resident_gib`` (with child processes), ``weight_version`` and ``engine``."""
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "resident_gib": resident_gib(os.getpid()),
            "weight_version": self._weight_version,
            "engine": self._rollout.engine,
        }

    def _ready(self) -> Engine:
        if self._unusable:
            raise RuntimeError(self._unusable)
        return self._loaded()

    def _awake(self) -> Engine:
        engine = self._ready()
        if self._asleep:
            raise RuntimeError(f"engine {self._index} sleeps: it needs its {' and '.join(sorted(self._asleep))} back")
        if not self._has_weights:
            raise RuntimeError(f"engine {self._index} woke up and was sent no weights")
        return engine

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise RuntimeError(f"engine {self._index} is not loaded: call load() first")
        return self._engine


@importing()
def _engine_class(engine: str, index: int, key: str) -> Callable[[Rollout, str, Lengths, int], Engine]:
    if engine == "hf":
        from trainers.roles.hf_engine import HfEngine

        return HfEngine
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError(
            f"engine {index} needs vLLM, which is not installed on {socket.gethostname()}: "
            f"pip install 'rltui[vllm]', or set {key}.engine=hf, which works without it",
            name="vllm",
        )
    from trainers.roles.vllm_engine import VllmEngine

    return VllmEngine


def check_lengths(prompts: Sequence[EnginePrompt], max_tokens: int, limit_tokens: int) -> None:
    """Check that every prompt has tokens and that prompt and completion fit into ``limit_tokens``.

    Raises:
        ValueError: One does not; it is named.
    """
    for number, prompt in enumerate(prompts):
        if not 1 <= len(prompt) <= limit_tokens - max_tokens:
            raise ValueError(
                f"prompt {number} has {len(prompt)} tokens; with {max_tokens} to sample and lengths.prompt + "
                f"lengths.response = {limit_tokens}, it must have 1 to {limit_tokens - max_tokens}"
            )


def derive_seed(*parts: int) -> int:
    """Return a 48-bit seed from ``parts``: neighbouring parts give unrelated seeds, on every machine the same."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest(), "big")
