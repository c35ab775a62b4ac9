"""The rollout engine: one Ray actor that samples completions and takes new weights from the learner.

``EngineActor`` is what the training loop talks to. It hides which implementation runs (vLLM or transformers), counts
the weight version, and refuses to generate from half-received weights.

Log-probabilities are those of the distribution that was sampled from: log_softmax(logits / temperature) in float32, at
the sampled token; where sampling is truncated, less the log of the kept tokens' share. The learner must divide its
logits by the same temperature before it compares. Greedy samples have those of temperature 1; nothing is trained on
them.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from trainers.roles.card import importing
from trainers.roles.completions import Completion, Part, Request, Streamed, derive_seed
from trainers.roles.endings import resident_gib
from trainers.roles.meter import measured
from trainers.roles.model_lock import ModelLock

if TYPE_CHECKING:
    from rltui.layout.schema import Lengths, Rollout
    from trainers.data.prompts import EnginePrompt
    from trainers.roles.sampling import SamplingSettings
    from trainers.weights import ParameterMeta, WeightGroup


WEIGHTS_GROUP = "weights"
"""Ray's concurrency group for calls that bring weights while the engine samples."""


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
            # vLLM keeps requests: those of a call that failed would come back with the answers to another
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
