"""What the engine tests share: a tiny model, a Ray of their own, and a learner's end in the test's process."""

from __future__ import annotations

import os
import pkgutil
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import torch
from ray._private.authentication_test_utils import reset_auth_token_state
from transformers import Qwen3Config, Qwen3ForCausalLM

from bare_ray import leave_out
from free_ports import free_ports
from rltui.layout.schema import Lengths, Rollout
from rltui.onnode.ray_process import ON_DEMAND
from trainers.roles.completions import Completion
from trainers.roles.engine import WEIGHTS_GROUP, EngineActor
from trainers.roles.engine_environment import engine_environment
from trainers.roles.sampling import SamplingSettings
from trainers.weights import ParameterMeta, WeightGroup, WeightSender
from waiting import WAIT_S

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PATHS = f"{ROOT}:{HERE.parent}:{HERE}"
"""Where Ray's workers find the product and what tests import."""
VOCABULARY = 100
STOP = 2

# Longer than one KV block of vLLM on CPU (128 tokens), so that a prompt can sit in the prefix cache.
LENGTHS = Lengths(prompt=144, response=16)


def build_model(seed: int = 0) -> Any:
    """A random Qwen3 of 105 k parameters with tied embeddings; weights large enough for peaked distributions."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=STOP,
    )
    return Qwen3ForCausalLM(config).eval().requires_grad_(False)


def perturb(model: Any, seed: int, scale: float = 0.05) -> None:
    """Move all weights, as a training step does, but further."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def manifest_of(model: Any) -> list[ParameterMeta]:
    return [ParameterMeta.of(name, parameter) for name, parameter in model.named_parameters()]


def reference_log_probs(model: Any, prompt: Sequence[int], completion: Completion, temperature: float) -> torch.Tensor:
    """log_softmax(logits / temperature) of the completion's tokens by one plain forward pass, without a cache."""
    ids = torch.tensor([[*prompt, *completion.token_ids]])
    logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float() / temperature
    return torch.log_softmax(logits, dim=-1)[range(len(completion.token_ids)), list(completion.token_ids)]


def parity(
    model: Any, prompts: Sequence[Sequence[int]], completions: Sequence[Completion], temperature: float = 1.0
) -> float:
    """Largest |engine log-prob - reference log-prob| over all tokens of all completions."""
    gaps = [
        (
            reference_log_probs(model, prompts[completion.prompt_index], completion, temperature)
            - torch.tensor(completion.log_probs)
        )
        .abs()
        .max()
        .item()
        for completion in completions
    ]
    return max(gaps)


def sampling(**changes: Any) -> SamplingSettings:
    settings = {"temperature": 1.0, "max_tokens": 12, "samples_per_prompt": 4, "stop_token_ids": (STOP,), "seed": 1}
    return SamplingSettings(**{**settings, **changes})


def random_prompts(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Prompts of random tokens that are not special ones."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


@contextmanager
def own_ray() -> Iterator[None]:
    """A Ray that shares neither port, folder nor token with any other on this machine."""
    # Short: the paths of Ray's sockets must fit into 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rltt-", dir="/tmp"))
    token = folder / "token"
    token.write_text("0123456789abcdef" * 4)
    token.chmod(0o600)
    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        **ON_DEMAND,
    }
    before = {name: os.environ.get(name) for name in [*settings, "RAY_ADDRESS"]}
    os.environ.update(settings)
    os.environ.pop("RAY_ADDRESS", None)
    reset_auth_token_state()  # Ray reads mode and token once, when the first test module imports it
    leave_out("dashboard")
    try:
        ray.init(
            address="local",
            num_cpus=8,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=100 * 2**20,
            _temp_dir=str(folder / "r"),
            runtime_env={"env_vars": {"PYTHONPATH": PATHS}},
        )
        yield
    finally:
        ray.shutdown()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        reset_auth_token_state()
        shutil.rmtree(folder, ignore_errors=True)


class GuardedEngineActor(EngineActor):
    """An engine of which a part can be left out, to show that a test fails without it."""

    def leave_out(self, target: str, name: str, result: Any) -> None:
        """Make the function ``name`` of ``target`` (a dotted module or class) do nothing but return ``result``."""
        owner = pkgutil.resolve_name(target)
        self._left_out = (owner, name, getattr(owner, name))
        setattr(owner, name, lambda *_arguments, **_options: result)

    def put_back(self) -> None:
        owner, name, original = self._left_out
        setattr(owner, name, original)


class RunningEngine:
    """A loaded engine in a Ray actor, the learner's end of its weight group, and the weights it should have.

    Args:
        rollout: Its role.
        model: Plain transformers model with the weights of ``model_path``.
        model_path: Its folder.
        index: The engine's number.
        kind: The actor's class; it has a thread for weights.

    Attributes:
        model: Plain transformers model with the weights that were last handed over.
        version: Their version.
    """

    def __init__(
        self, rollout: Rollout, model: Any, model_path: str, index: int = 0, kind: type = GuardedEngineActor
    ) -> None:
        self.model = model
        self.version = 0
        self.rollout = rollout
        environment = {**engine_environment(rollout, on_cpu=True), "PYTHONPATH": PATHS}
        options = {"num_cpus": rollout.tensor_parallel, "runtime_env": {"env_vars": environment}}
        actor_class = ray.remote(concurrency_groups={WEIGHTS_GROUP: 1})(kind).options(**options)
        self.actor = actor_class.remote(rollout, model_path, LENGTHS, index)
        self.load_s = self.call("load")
        self._senders: list[WeightSender] = []

    def call(self, method: str, *arguments: Any) -> Any:
        return ray.get(getattr(self.actor, method).remote(*arguments), timeout=WAIT_S)

    def bring(self, method: str, *arguments: Any) -> Any:
        """Call ``method`` in the thread for weights; returns at once."""
        return getattr(self.actor, method).options(concurrency_group=WEIGHTS_GROUP).remote(*arguments)

    def generate(self, prompts: list[list[int]], settings: SamplingSettings) -> list[Completion]:
        return self.call("generate", prompts, settings)

    def connect(self, **changes: Any) -> None:
        """Make a weight group of learner and engine, as the training loop does."""
        group = WeightGroup("127.0.0.1", free_ports(1)[0], 1 + self.rollout.tensor_parallel, timeout_s=30.0, **changes)
        joined = self.actor.join_weight_group.remote(group, 1)
        self._senders = [WeightSender(group, timeout_s=30.0)]
        ray.get(joined, timeout=WAIT_S)

    def share(self) -> None:
        """Meet each of the engine's workers alone, as learners do whose cards they are on."""
        places = tuple(secrets.token_hex(8) for _ in range(self.rollout.tensor_parallel))
        joined = self.actor.join_weight_group.remote(WeightGroup("", 0, 2, timeout_s=30.0, places=places), 1)
        groups = [WeightGroup("", 0, 2, timeout_s=30.0, places=(place,)) for place in places]
        self._senders = [WeightSender(group, timeout_s=30.0) for group in groups]
        ray.get(joined, timeout=WAIT_S)

    def train(self) -> int:
        """Move the weights and hand them over as the next version; return the engine's acknowledgement."""
        self.version += 1
        perturb(self.model, self.version)
        return self.hand_over(manifest_of(self.model))

    def hand_over(self, manifest: list[ParameterMeta]) -> int:
        """Send the parameters of ``manifest``."""
        acknowledged = self.bring("receive_weights", manifest, self.version)
        tensors = [(meta.name, self.model.get_parameter(meta.name)) for meta in manifest]
        with ThreadPoolExecutor() as threads:
            for sent in [threads.submit(sender.send, tensors, self.version) for sender in self._senders]:
                sent.result()
        return ray.get(acknowledged, timeout=WAIT_S)

    def parity(self, prompts: list[list[int]], settings: SamplingSettings) -> float:
        """Largest |engine log-prob - log-prob of a plain forward of ``model``| over freshly sampled completions."""
        return parity(self.model, prompts, self.generate(prompts, settings), settings.temperature)

    def close(self) -> None:
        for sender in self._senders:
            sender.close()
        ray.kill(self.actor)
