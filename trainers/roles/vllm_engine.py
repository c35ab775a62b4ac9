"""Rollout by vLLM, on GPUs and, with the CPU build, on CPU."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig
from vllm import LLM, SamplingParams

from trainers.roles.engine import Completion, SamplingSettings, derive_seed
from trainers.roles.vllm_weights import BACKEND, WORKER_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.layout.schema import Lengths, Rollout
    from trainers.weights import ParameterMeta, WeightGroup

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

MAX_SEQUENCES = 256
"""Sequences that run at once; vLLM queues the others."""

CPU_BLOCK_TOKENS = 128
"""Tokens of a KV block on CPU."""

CPU_KV_BYTES_MIN, CPU_KV_BYTES_MAX = 2**26, 2**32
"""Between these, the KV cache on CPU has room for ``MAX_SEQUENCES`` full-length sequences."""


class VllmEngine:
    """An engine on ``tensor_parallel`` devices, all of them this node's.

    Args:
        rollout: The rollout role of the layout.
        model_path: Local folder or Hugging Face name of the initial weights.
        lengths: Token limits of the layout.
        index: Number of this engine.
    """

    def __init__(self, rollout: Rollout, model_path: str, lengths: Lengths, index: int) -> None:
        self._index = index
        self._llm = LLM(**engine_arguments(rollout, model_path, lengths, on_cpu=not torch.cuda.is_available()))

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, weight_version: int
    ) -> list[Completion]:
        """Sample completions, all of the first prompt first."""
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        parameters = [_sampling_parameters(sampling, number) for number in range(len(prompts))]
        outputs = self._llm.generate(requests, parameters, use_tqdm=False)
        return [
            _completion(prompt_index, sample, weight_version)
            for prompt_index, output in enumerate(outputs)
            for sample in output.outputs
        ]

    def join_weight_group(self, group: WeightGroup, rank_offset: int) -> None:
        """Join ``group`` with all workers, the first as rank ``rank_offset``."""
        info = {"group": asdict(group), "rank_offset": rank_offset, "owner": f"engine {self._index}"}
        self._llm.init_weight_transfer_engine({"init_info": info})

    def receive_weights(self, manifest: Sequence[ParameterMeta], version: int) -> None:
        """Take the learner's parameters into all workers, and forget the KV blocks that the old ones computed."""
        described = [(meta.name, meta.dtype, list(meta.shape)) for meta in manifest]
        self._llm.start_weight_update()
        self._llm.update_weights({"update_info": {"manifest": described, "version": version}})
        self._llm.finish_weight_update(str(version))
        if not self._llm.reset_prefix_cache():
            raise RuntimeError(f"engine {self._index} could not drop its prefix cache at version {version}")


def engine_arguments(rollout: Rollout, model_path: str, lengths: Lengths, on_cpu: bool) -> dict[str, Any]:
    """Return the keyword arguments of ``vllm.LLM`` for a rollout role."""
    max_model_len = lengths.prompt + lengths.response
    arguments: dict[str, Any] = {
        "model": model_path,
        # Tokens in, tokens out; and no sampling defaults or extra stop tokens from the model's folder.
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        # Log-probabilities after temperature, the convention of trainers.roles.engine.
        "logprobs_mode": "processed_logprobs",
        "dtype": DTYPES[rollout.precision],
        "tensor_parallel_size": rollout.tensor_parallel,
        # Named, because inside a placement group vLLM would choose Ray, and look for bundles of its own.
        "distributed_executor_backend": "uni" if rollout.tensor_parallel == 1 else "mp",
        "max_model_len": max_model_len,
        "max_num_seqs": MAX_SEQUENCES,
        "weight_transfer_config": {"backend": BACKEND},
        "worker_extension_cls": WORKER_EXTENSION,
    }
    if on_cpu:
        config = AutoConfig.from_pretrained(model_path).get_text_config()
        itemsize = getattr(torch, DTYPES[rollout.precision]).itemsize
        arguments["kv_cache_memory_bytes"] = cpu_kv_cache_bytes(config, itemsize, max_model_len)
        arguments["enforce_eager"] = True
    else:
        arguments["gpu_memory_utilization"] = rollout.memory_utilization
    return arguments


def cpu_kv_cache_bytes(config: Any, itemsize: int, max_model_len: int) -> int:
    """Return the bytes of KV cache for a CPU engine, where vLLM by itself would take nearly all memory of the node.

    Args:
        config: transformers configuration of the model.
        itemsize: Bytes of one number in the cache.
        max_model_len: Longest sequence in tokens.
    """
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    token_bytes = 2 * config.num_hidden_layers * kv_heads * head_dim * itemsize
    sequence_bytes = -(-max_model_len // CPU_BLOCK_TOKENS) * CPU_BLOCK_TOKENS * token_bytes
    wanted = min(max(MAX_SEQUENCES * sequence_bytes, CPU_KV_BYTES_MIN), CPU_KV_BYTES_MAX)
    return int(max(wanted, 2 * sequence_bytes))


def _sampling_parameters(sampling: SamplingSettings, prompt_index: int) -> Any:
    return SamplingParams(
        n=sampling.samples_per_prompt,
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        # Only our stop token ends a sample, as in the other engine.
        stop_token_ids=[sampling.stop_token_id],
        ignore_eos=True,
        logprobs=0,
        detokenize=False,
        # vLLM adds the sample's number to it. Without one, samples would depend on what ran before.
        seed=derive_seed(sampling.seed, prompt_index),
    )


def _completion(prompt_index: int, sample: Any, weight_version: int) -> Completion:
    token_ids = tuple(sample.token_ids)
    pairs = zip(token_ids, sample.logprobs, strict=True)
    return Completion(
        prompt_index=prompt_index,
        token_ids=token_ids,
        log_probs=tuple(candidates[token].logprob for token, candidates in pairs),
        finish_reason=sample.finish_reason,
        weight_version=weight_version,
    )
