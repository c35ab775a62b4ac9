"""Rollout by vLLM, on GPUs and, with the CPU build, on CPU."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig
from vllm import LLM, envs
from vllm.engine.arg_utils import EngineArgs

from trainers.data.prompts import images_of, tokens_of
from trainers.data.stops import Stops
from trainers.roles.vllm_counters import VllmCounters
from trainers.roles.vllm_images import VllmImages
from trainers.roles.vllm_samples import VllmSamples
from trainers.roles.vllm_weights import BACKEND, WORKER_EXTENSION
from trainers.weights import WeightTransferError

if TYPE_CHECKING:
    from rltui.layout.schema import Lengths, Rollout
    from trainers.roles.completions import Part, Request, Streamed
    from trainers.weights import ParameterMeta, WeightGroup

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

ARGUMENT_OF = {
    "precision": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "tensor_parallel": "tensor_parallel_size",
    "max_concurrency": "max_num_seqs",
    "memory_utilization": "gpu_memory_utilization",
    "sleep_while_training": "enable_sleep_mode",
    "enforce_eager": "enforce_eager",
    "router_replay": "enable_return_routed_experts",
}
"""The argument of vLLM that each key of a rollout role decides; the other keys are about where and how many."""

SLEEP_TAGS: dict[Part, str] = {"weights": "weights", "cache": "kv_cache"}
"""vLLM's words for what wakes up."""

MAX_SEQUENCES = 256
"""Sequences that run at once, unless the layout says otherwise; vLLM queues the others."""

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

    _is_paused = False
    _received = 0
    """Whole weights that came so far; a version may come twice, and be other weights after a restart."""

    def __init__(self, rollout: Rollout, model_path: str, lengths: Lengths, index: int) -> None:
        self._index, self._model_path = index, model_path
        self._images = VllmImages(model_path, lengths) if lengths.images else None
        arguments = engine_arguments(rollout, model_path, lengths, on_cpu=not torch.cuda.is_available())
        self._llm = LLM(**(arguments | ({} if self._images is None else self._images.arguments())))
        self._llm.update_weight_version("0")
        counters = self._llm.llm_engine.logger_manager = VllmCounters()
        placeholder = () if self._images is None else (self._images.token_id,)
        check = None if self._images is None else self._images.check
        slots = arguments[ARGUMENT_OF["max_concurrency"]]
        self._samples = VllmSamples(self._llm.llm_engine, slots, placeholder, check, counters)

    def stream(self, requests: Sequence[Request], low: int, weight_version: Callable[[], int]) -> Streamed:
        """Take prompts in beside what is under way, and sample until some is done; vLLM refills its slots by itself."""
        for request in requests:
            stops = Stops(request.sampling.stop_token_ids, request.sampling.stop_texts, self._model_path)
            self._samples.add(request, self._request(request), stops, self._salt())
        return self._samples.run(low, weight_version)

    def abandon(self) -> None:
        """Forget what is under way."""
        self._samples.abandon()

    def _request(self, request: Request) -> dict[str, Any]:
        token_ids, images = [*tokens_of(request.prompt), *request.sampling.forced], images_of(request.prompt)
        return {"prompt_token_ids": token_ids} if self._images is None else self._images.request(token_ids, images)

    def join_weight_group(self, group: WeightGroup, rank_offset: int) -> None:
        """Join ``group`` with all workers, the first as rank ``rank_offset``.

        Raises:
            WeightTransferError: Some rank did not come in time.
        """
        info = {"group": asdict(group), "rank_offset": rank_offset, "owner": f"engine {self._index}"}
        self._llm.init_weight_transfer_engine({"init_info": info})
        self._check_workers()

    def receive_weights(self, manifest: Sequence[ParameterMeta], version: int) -> None:
        """Take the learner's parameters into all workers; no later sample reads KV blocks that the old ones computed.

        Samples that are under way go on with their own, see ``VllmSamples.renew``. If it fails, they wait.

        Raises:
            WeightTransferError: The learner's parameters are not the model's, or did not come.
        """
        if self._samples.are_under_way:
            self._pause()
        described = [(meta.name, meta.dtype, list(meta.shape)) for meta in manifest]
        self._llm.start_weight_update()
        self._llm.update_weights({"update_info": {"manifest": described, "version": version}})
        self._llm.finish_weight_update()
        self._check_workers()
        self._llm.update_weight_version(str(version))
        self._received += 1
        if self._images is not None:
            # What the old vision tower made of an image would be taken for the new one's.
            self._llm.llm_engine.reset_encoder_cache()
        if self._samples.are_under_way:
            self._samples.renew(self._salt())
        if self._is_paused:
            self._llm.wake_up(["scheduling"])
            self._is_paused = False

    def _check_workers(self) -> None:
        """Raise what went wrong in a worker."""
        for failure in self._llm.collective_rpc("transfer_failure"):
            if failure:
                raise WeightTransferError(failure)

    def _salt(self) -> str:
        """What tells KV blocks of the weights that are there from those of others, see ``VllmSamples.renew``."""
        return str(self._received)

    def _pause(self) -> None:
        """Schedule nothing more; what is being computed comes to its end with the old weights, and counts as theirs."""
        # level 0 gives no memory back: it stops the scheduler alone
        self._llm.sleep(level=0, mode="keep")
        self._is_paused = True
        if not envs.VLLM_ENABLE_V1_MULTIPROCESSING:
            # An engine in a process of its own does this by itself.
            for _ in range(self._llm.llm_engine.vllm_config.max_concurrent_batches):
                self._samples.step()

    def sleep(self) -> None:
        """Drop weights and KV cache: keeping a copy of weights that the learner sends anyway would cost host memory."""
        self._llm.sleep(level=2)

    def wake(self, part: Part) -> None:
        """Take the memory of ``part`` again, at the same addresses, which CUDA graphs rely on."""
        self._llm.wake_up(tags=[SLEEP_TAGS[part]])


def engine_arguments(rollout: Rollout, model_path: str, lengths: Lengths, on_cpu: bool) -> dict[str, Any]:
    """Return the keyword arguments of ``vllm.LLM`` for a rollout role."""
    max_model_len = lengths.prompt + lengths.response
    arguments: dict[str, Any] = {
        "model": model_path,
        # Tokens in, tokens out; and no sampling defaults or extra stop tokens from the model's folder.
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        # Its scheduler counts nothing otherwise; see trainers.roles.vllm_counters.
        "disable_log_stats": False,
        # Log-probabilities after temperature, the convention of trainers.roles.engine.
        "logprobs_mode": "processed_logprobs",
        ARGUMENT_OF["precision"]: DTYPES[rollout.precision],
        ARGUMENT_OF["quantization"]: None if rollout.quantization == "none" else rollout.quantization,
        ARGUMENT_OF["kv_cache_dtype"]: rollout.kv_cache_dtype,
        ARGUMENT_OF["tensor_parallel"]: rollout.tensor_parallel,
        # Named, because inside a placement group vLLM would choose Ray, and look for bundles of its own.
        "distributed_executor_backend": "uni" if rollout.tensor_parallel == 1 else "mp",
        "max_model_len": max_model_len,
        ARGUMENT_OF["max_concurrency"]: rollout.max_concurrency or MAX_SEQUENCES,
        "weight_transfer_config": {"backend": BACKEND},
        "worker_extension_cls": WORKER_EXTENSION,
    }
    if on_cpu and rollout.router_replay:
        raise ValueError(
            "roles.rollout.router_replay: vLLM tells which experts it took from its model runner V2 only, which needs "
            "Triton and therefore a card; set roles.rollout.engine=hf"
        )
    if on_cpu:
        config = AutoConfig.from_pretrained(model_path).get_text_config()
        itemsize = getattr(torch, DTYPES[rollout.precision]).itemsize
        arguments["kv_cache_memory_bytes"] = cpu_kv_cache_bytes(config, itemsize, max_model_len)
        # there are no CUDA graphs to capture, and torch's compiler would want one of C++ on every node
        arguments["enforce_eager"] = True
    else:
        # On CPU vLLM refuses the second, and takes its calls without doing anything.
        for key in ("memory_utilization", "sleep_while_training", "enforce_eager", "router_replay"):
            arguments[ARGUMENT_OF[key]] = getattr(rollout, key)
    check_own_arguments(rollout.engine_args, arguments)
    return arguments | rollout.engine_args


def check_own_arguments(own: Mapping[str, Any], ours: Collection[str]) -> None:
    """Check what a layout passes on to vLLM against the installed version's arguments.

    Args:
        own: ``roles.rollout.engine_args``.
        ours: Arguments that other keys of the layout, or this engine, decide.

    Raises:
        ValueError: vLLM has no such argument, or it is not the layout's to set.
    """
    known = {field.name for field in fields(EngineArgs)}
    keys = {argument: f"roles.rollout.{key}" for key, argument in ARGUMENT_OF.items()}
    for name in own:
        if name in keys or name in ours:
            instead = f"set {keys[name]}" if name in keys else "the engine depends on its own value"
            raise ValueError(f"roles.rollout.engine_args has {name}: {instead}")
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name, known)) or "see vLLM's EngineArgs"
            raise ValueError(f"roles.rollout.engine_args has {name}, which this vLLM does not know: {near}")


def cpu_kv_cache_bytes(config: Any, itemsize: int, max_model_len: int) -> int:
    """Return the bytes of KV cache for a CPU engine, where vLLM by itself would take nearly all memory of the node.

    Args:
        config: transformers configuration of the model.
        itemsize: Bytes of one number in the cache.
        max_model_len: Longest sequence in tokens.
    """
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    # a key and a value in each layer and KV head
    token_bytes = 2 * config.num_hidden_layers * kv_heads * head_dim * itemsize
    sequence_bytes = -(-max_model_len // CPU_BLOCK_TOKENS) * CPU_BLOCK_TOKENS * token_bytes
    wanted = min(max(MAX_SEQUENCES * sequence_bytes, CPU_KV_BYTES_MIN), CPU_KV_BYTES_MAX)
    return int(max(wanted, 2 * sequence_bytes))
