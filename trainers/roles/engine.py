"""The rollout engine: one Ray actor that samples completions and takes new weights from the learner.

``EngineActor`` is what the training loop talks to. It hides which implementation runs (vLLM or transformers), counts
the weight version, and refuses to generate from half-received weights.

Log-probabilities are those of the distribution that was sampled from: log_softmax(logits / temperature) in float32, at
the sampled token. The learner must divide its logits by the same temperature before it compares.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.layout.schema import Lengths, Rollout
    from trainers.weights import ParameterMeta, WeightGroup

LOWEST_TEMPERATURE = 0.01
"""vLLM silently raises lower temperatures to this one, so none of the engines takes them."""


@dataclass(frozen=True)
class SamplingSettings:
    """How to sample.

    Attributes:
        temperature: Divides the logits; at least 0.01.
        max_tokens: Longest completion, in tokens, the stop token included.
        samples_per_prompt: Completions of each prompt.
        stop_token_id: A completion ends with this token, which is part of it.
        seed: The same seed, prompts, engine index and weights give the same completions.
    """

    temperature: float
    max_tokens: int
    samples_per_prompt: int
    stop_token_id: int
    seed: int

    def __post_init__(self) -> None:
        if self.temperature < LOWEST_TEMPERATURE:
            raise ValueError(f"temperature is {self.temperature}; the lowest that engines take is {LOWEST_TEMPERATURE}")
        if self.max_tokens < 1 or self.samples_per_prompt < 1:
            raise ValueError("max_tokens and samples_per_prompt must be at least 1")


@dataclass(frozen=True)
class Completion:
    """One sample.

    Attributes:
        prompt_index: Which of the prompts of the call it completes.
        token_ids: Sampled tokens, with the stop token if there was one.
        log_probs: Log-probability of each token in the distribution it was sampled from (at temperature).
        finish_reason: ``stop``: the last token is the stop token; ``length``: it was cut.
        weight_version: Version of the weights that sampled it.
    """

    prompt_index: int
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]
    weight_version: int


class Engine(Protocol):
    """What an implementation must do; its constructor loads the model."""

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, weight_version: int
    ) -> list[Completion]:
        """Sample completions, all of the first prompt first."""

    def join_weight_group(self, group: WeightGroup, rank_offset: int) -> None:
        """Join ``group`` as ranks ``rank_offset`` and, with tensor parallelism, those after it; blocks."""

    def receive_weights(self, manifest: Sequence[ParameterMeta], version: int) -> None:
        """Take the parameters of ``manifest`` from the learner into the model; blocks until they are in use."""


class EngineActor:
    """A rollout engine; the caller makes it a Ray actor.

    Args:
        rollout: The rollout role of the layout.
        model_path: Local folder (or Hugging Face name) of the initial weights, which count as version 0.
        lengths: Token limits of the layout.
        index: Number of this engine; part of every seed, so that engines do not repeat each other's samples.
    """

    def __init__(self, rollout: Rollout, model_path: str, lengths: Lengths, index: int) -> None:
        self._rollout = rollout
        self._model_path = model_path
        self._lengths = lengths
        self._index = index
        self._engine: Engine | None = None
        self._weight_version = 0
        self._unusable = ""

    def load(self) -> float:
        """Load the model; call it once.

        Returns:
            Seconds that it took, imports included.

        Raises:
            ModuleNotFoundError: ``roles.rollout.engine`` is vllm and vLLM is not installed.
            ValueError: The engine cannot run this rollout role.
        """
        if self._engine is not None:
            raise RuntimeError(f"engine {self._index} is loaded already")
        started = time.monotonic()
        self._engine = _build(self._rollout, self._model_path, self._lengths, self._index)
        return time.monotonic() - started

    def generate(self, prompts: list[list[int]], sampling: SamplingSettings) -> list[Completion]:
        """Sample ``samples_per_prompt`` completions of each prompt (token ids), all of the first prompt first.

        Raises:
            ValueError: A prompt is empty or too long for the layout's token limits.
            RuntimeError: The engine is not loaded, or holds half-received weights.
        """
        engine = self._ready()
        check_lengths(prompts, sampling.max_tokens, self._lengths.prompt + self._lengths.response)
        if not prompts:
            return []
        own = replace(sampling, seed=derive_seed(sampling.seed, self._index))
        return engine.generate(prompts, own, self._weight_version)

    def join_weight_group(self, group: WeightGroup, rank_offset: int) -> None:
        """Join the weight transfer group; blocks until all ranks have joined.

        Args:
            group: Where to meet.
            rank_offset: Rank of this engine's first worker, 1 + index * tensor_parallel.

        Raises:
            WeightTransferError: Some rank did not come in time.
        """
        self._ready().join_weight_group(group, rank_offset)

    def receive_weights(self, manifest: list[ParameterMeta], version: int) -> int:
        """Take new weights from the learner, which must send at the same time; blocks until they are in use.

        Args:
            manifest: What the learner sends, in its order.
            version: Version of these weights; the learner's must be the same.

        Returns:
            ``version``, as the acknowledgement that all later completions are sampled with it.

        Raises:
            WeightTransferError: The weights did not come, or not as announced. The engine then refuses to generate.
        """
        engine = self._ready()
        self._unusable = f"engine {self._index} may hold parts of weight version {version}; start it again"
        engine.receive_weights(manifest, version)
        self._unusable = ""
        self._weight_version = version
        return version

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
        if self._engine is None:
            raise RuntimeError(f"engine {self._index} is not loaded: call load() first")
        if self._unusable:
            raise RuntimeError(self._unusable)
        return self._engine


def engine_environment(rollout: Rollout, on_cpu: bool | None = None) -> dict[str, str]:
    """Return the environment variables that an engine's process needs from its start.

    Args:
        rollout: The rollout role of the layout.
        on_cpu: Whether the engine's node has no GPU for it, as ``hardware.gpu: cpu`` says. None: whether this
            process sees none, which is only right where this process and the engines have the same kind of node.
    """
    if on_cpu is None:
        import torch

        on_cpu = not torch.cuda.is_available()
    variables = {"TOKENIZERS_PARALLELISM": "false"}
    if on_cpu:
        # Each slot is one CPU process; tiny models are slower with more threads, which wait for each other.
        variables["OMP_NUM_THREADS"] = "1"
    if rollout.engine == "vllm":
        variables |= _vllm_environment(rollout.tensor_parallel, on_cpu)
    return variables


def _vllm_environment(tensor_parallel: int, on_cpu: bool) -> dict[str, str]:
    variables = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # One worker runs inside the actor: no second process to start, and its end is the actor's end.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if tensor_parallel == 1 else "1",
    }
    if on_cpu:
        # Ray owns the cores, and vLLM's own binding would put every engine of a node on the same ones.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        # Without this the first request for log-probabilities compiles a kernel for 15 s and needs a C++ compiler.
        variables["TORCHDYNAMO_DISABLE"] = "1"
    return variables


def _build(rollout: Rollout, model_path: str, lengths: Lengths, index: int) -> Engine:
    if rollout.engine == "hf":
        from trainers.roles.hf_engine import HfEngine

        return HfEngine(rollout, model_path, index)
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError(
            f"engine {index} needs vLLM, which is not installed on {socket.gethostname()}: "
            "pip install 'rltui[vllm]', or set roles.rollout.engine=hf, which works without it",
            name="vllm",
        )
    from trainers.roles.vllm_engine import VllmEngine

    return VllmEngine(rollout, model_path, lengths, index)


def check_lengths(prompts: Sequence[Sequence[int]], max_tokens: int, limit_tokens: int) -> None:
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


def resident_gib(pid: int) -> float:
    """Return the resident memory of process ``pid`` and its descendants, in GiB; what is gone counts for nothing."""
    total = 0
    pending = [pid]
    while pending:
        process = Path("/proc") / str(pending.pop())
        try:
            total += int((process / "statm").read_text().split()[1])
            for children in process.glob("task/*/children"):
                pending += [int(child) for child in children.read_text().split()]
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 2**30
