"""What an estimate is made from: how a model is split, in what precision it is trained, on how many tokens."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Backend = Literal["deepspeed", "fsdp", "fsdp1", "megatron", "plain"]
Checkpointing = Literal["none", "selective", "full", "offload"]
Kernels = Literal["fused", "eager", "litgpt"]
Head = Literal["full", "freed", "vocab_parallel", "compiled", "fused", "streamed", "in_place", "chunked", "none"]


class States(Struct, frozen=True, kw_only=True):
    """Bytes that one trained parameter takes, before it is divided among GPUs.

    Attributes:
        weights: The copy that the forward pass reads, or that it is gathered from.
        gradients: The gradient that waits for the optimizer.
        master: A float32 copy of the weights beside ``weights``, 0 where they are float32 themselves.
        moments: Adam's two moments.
        step_copy: The gradient in float32 while the optimizer steps, where ``gradients`` is not float32.
        step_temporary: What the optimizer allocates while it steps: torch's AdamW (``foreach``, the default on a card)
            takes once more what it steps, says its documentation; fused kernels take nothing.
        compute: A number in the forward pass.
    """

    weights: float
    gradients: float
    master: float = 0.0
    moments: float = 0.0
    step_copy: float = 0.0
    step_temporary: float = 0.0
    compute: float = 2.0

    @property
    def resident(self) -> float:
        """All that stays between steps and builds up before the optimizer's."""
        return self.weights + self.gradients + self.master + self.moments

    @property
    def stepping(self) -> float:
        """What the optimizer's step needs besides."""
        return self.step_copy + self.step_temporary


DEEPSPEED_BF16 = States(weights=2, gradients=2, master=4, moments=8, step_copy=4, step_temporary=4)
"""DeepSpeed with bf16 or fp16 on: 16 bytes a parameter (Rajbhandari et al. 2020, arXiv:1910.02054, section 3)."""

DEEPSPEED_BF16_FP32_GRADIENTS = States(weights=2, gradients=4, master=4, moments=8, step_temporary=4)
"""DeepSpeed with ``grad_accum_dtype: fp32``: 18 bytes a parameter."""

DEEPSPEED_FP32 = States(weights=4, gradients=4, master=4, moments=8, step_temporary=4, compute=4)
"""DeepSpeed in float32 with ZeRO, which clones its partition of the weights."""

FSDP_FP32 = States(weights=4, gradients=4, moments=8)
"""FSDP with float32 shards and bf16 compute: 16 bytes a parameter (torchtitan with its fused AdamW, prime-rl)."""

MEGATRON_BF16 = States(weights=2, gradients=4, master=4, moments=8)
"""Megatron with ``--use-distributed-optimizer``: every replica has bf16 weights and float32 gradients."""

MEGATRON_BF16_GRADIENTS = States(weights=2, gradients=2, master=4, moments=8)
"""The same with gradients reduced in 16 bits (``grad_reduce_in_fp32: false``, as Megatron-Bridge's recipes have it)."""

MEGATRON_BF16_MOMENTS = States(weights=2, gradients=2, master=4, moments=4)
"""And moments in 16 bits (``use_precision_aware_optimizer`` with ``exp_avg_dtype: bf16``: Moonlight's recipe)."""

FSDP_FP32_FOREACH = States(weights=4, gradients=4, moments=8, step_temporary=4)
"""The same with torch's own AdamW (verl, transformers): 16 bytes a parameter, 20 while it steps."""

PURE_BF16 = States(weights=2, gradients=2, moments=4)
"""Everything in bf16, no master weights: 8 bytes a parameter."""

PURE_BF16_FOREACH = States(weights=2, gradients=2, moments=4, step_temporary=2)
"""The same with torch's own AdamW (litgpt, transformers without mixed precision): 10 bytes a parameter as it steps."""

BF16_ADAM_8BIT = States(weights=2, gradients=2, moments=2)
"""bf16 weights with 8-bit Adam (Dettmers et al. 2022, arXiv:2110.02861): 6 bytes a parameter."""

BF16_ADAM_8BIT_FUSED = States(weights=2, gradients=0, moments=0)
"""8-bit Adam in paged host memory, stepping inside the backward pass: the largest gradient alone stays on the card."""

FP32 = States(weights=4, gradients=4, moments=8, step_temporary=4, compute=4)
"""Everything in float32 with torch's own AdamW: 16 bytes a parameter."""


class Sharding(Struct, frozen=True, kw_only=True):
    """How a model in training is divided among GPUs.

    Attributes:
        gpus: GPUs that train it.
        backend: Who gathers and buffers: DeepSpeed, FSDP2, the first FSDP (``fsdp1``, which accelerate takes unless
            told otherwise), Megatron's distributed optimizer, or nobody (DDP, one GPU).
        zero_stage: 1: optimizer divided; 2: gradients too; 3: weights too. FSDP is 3, Megatron 1.
        tensor_parallel: GPUs that divide each matrix.
        pipeline_parallel: Groups of layers.
        context_parallel: GPUs that divide each sequence.
        expert_parallel: GPUs that divide the experts.
        expert_tensor_parallel: GPUs that divide each matrix of an expert. Megatron takes the degree of tensor
            parallelism unless it is told (``expert_tensor_parallel_size``); ms-swift and Megatron-Bridge tell it 1.
        sequence_parallel: Whether these GPUs divide norms and residuals, too, along the sequence. Megatron does so
            where it is told (``--sequence-parallel``), torch's tensor parallelism always, DeepSpeed's (AutoTP) never.
        hpz: ZeRO++ secondary partition (``zero_hpz_partition_size``); 1: none.
        offload: What lives in host memory. Megatron's ``optimizer_cpu_offload`` is ``optimizer`` with its
            precision-aware optimizer and ``moments`` without, where the float32 shards of the weights are made on the
            card first and stay there (``shard_fp32_from_float16_groups`` of its ``distrib_optimizer.py``).
        offload_share: Share of the parameters whose optimizer is offloaded (Megatron's ``optimizer_offload_fraction``).
        trains_on_card: Whether what is offloaded comes back to the card to train (verl's ``param_offload``), and is not
            stepped with in host memory (DeepSpeed, FSDP's own offload).
        ends_apart: Whether FSDP gathers embedding and LM head as units of their own, each in its turn (torchtune's
            ``custom_sharded_layers``), and not with the root unit, which stays gathered until the backward pass ends.
        gathers_keys: Whether GPUs that share a sequence gather its keys and values (torch's context parallelism), and
            do not divide the heads (Ulysses) or pass them round.
        buckets_by_width: Whether DeepSpeed's buckets are those of the bundled trainers (``states.zero_traffic``), and
            not of its defaults.
        defers_sync: Whether gradients are reduced with the last micro-batch of a step alone, so that those of earlier
            ones are whole on every GPU (FSDP2's ``set_requires_gradient_sync``: verl since July 2026, NeMo-RL's and
            Automodel's ``defer_fsdp_grad_sync``).
    """

    gpus: int = 1
    backend: Backend = "deepspeed"
    zero_stage: Literal[0, 1, 2, 3] = 3
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: int = 1
    sequence_parallel: bool = True
    hpz: int = 1
    offload: Literal["", "moments", "optimizer", "all"] = ""
    offload_share: float = 1.0
    trains_on_card: bool = False
    ends_apart: bool = False
    gathers_keys: bool = False
    buckets_by_width: bool = False
    defers_sync: bool = False

    @property
    def replicas(self) -> int:
        """Ranks that hold the same slice of the shared weights, and over which ZeRO divides."""
        return max(1, self.gpus // (self.tensor_parallel * self.pipeline_parallel))

    @property
    def whole_norms(self) -> bool:
        """Whether each of the GPUs that divide matrices has norms and residuals of all tokens."""
        return self.tensor_parallel > 1 and (self.backend == "deepspeed" or not self.sequence_parallel)

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        if self.expert_parallel == 1:
            return self.replicas
        return max(1, self.gpus // (self.pipeline_parallel * self.expert_split))

    @property
    def expert_split(self) -> int:
        """Parts into which each layer's experts are cut before ZeRO."""
        if self.expert_parallel == 1:
            return self.tensor_parallel
        return self.expert_parallel * self.expert_tensor_parallel


class Adapter(Struct, frozen=True, kw_only=True):
    """Low-rank adapters on a frozen base (Hu et al. 2021, arXiv:2106.09685).

    Attributes:
        rank: Rank of the update.
        targets: Layers that have adapters: those of attention, all ``linear`` ones but routed experts, ``all``, or what
            ``peft`` takes for all linear ones: also routed experts, but those that are published as stacks (gpt-oss).
        base_bytes: Bytes of a frozen parameter of the layers: 2 for bf16, 4 for float32 shards, 0.55 for NF4.
        states: Of the adapters' parameters.
        float32: Whether they are float32 beside a 16-bit base, so that each layer copies its input into that (PEFT's
            ``autocast_adapter_dtype``, on by default; sharding and the bundled trainers have them in 16 bits).
        float32_ends: Whether all that is not quantised is float32, and with it the residual stream and the logits
            (PEFT's ``prepare_model_for_kbit_training``).
    """

    rank: int = 16
    targets: Literal["attention", "linear", "all", "peft"] = "linear"
    base_bytes: float = 2.0
    states: States = DEEPSPEED_BF16
    float32: bool = False
    float32_ends: bool = False

    @property
    def quantised(self) -> bool:
        """Whether the base is stored in less than 8 bits."""
        return self.base_bytes < 1


class Workload(Struct, frozen=True, kw_only=True):
    """What one forward and backward pass of a rank works on.

    Attributes:
        tokens: Tokens of a micro-batch, padding included, before tensor or context parallelism divides them.
        head_tokens: Tokens whose logits are computed; None: all.
        sequences: Rows of the micro-batch; together with ``tokens`` they give the length.
        accumulates: Whether gradients of earlier micro-batches are there during the backward pass.
        checkpointing: ``full``: each layer keeps its input only; ``offload``: in host memory; ``selective``: some
            matrix products are kept too; ``none``: nothing is recomputed.
        kernels: ``fused`` (compiled, Megatron, Liger), ``eager`` (transformers as it is), which keeps more, or
            ``litgpt``, of which it is not counted what is kept.
        head: How log-probabilities come from logits. ``full``: float32 cross-entropy; ``freed``: the same, with the
            logits dropped before the backward pass; ``vocab_parallel``: Megatron's own, over divided logits;
            ``compiled``: the compiler fuses it; ``fused``: so that nothing is left in float32; ``streamed``: 16-bit
            logits whose place their gradients take, float32 in one chunk of eight; ``in_place``: 16-bit logits whose
            place their gradients take (verl with FlashAttention's cross-entropy); ``chunked``: never all logits
            (Liger's fused loss too); ``none``: the model has no LM head.
        attention: Whether a kernel fuses softmax attention, or it is written out, with a score for each pair of tokens.
        delta_rule: How linear attention runs: with flash-linear-attention's kernels, or as ``torch`` operations in
            float32, which transformers falls back to without them.
        keeps_exchanges: Whether selective checkpointing keeps what goes to experts of other GPUs and what comes back
            (torchtitan's DeepSeek-V3 since September 2025, all its models since March 2026).
        mask: Whether attention takes a padding mask, which is as large as length × length.
        reference: Frozen models of the same size that are on the card too (DPO, KL).
        pipeline_micro_batches: Micro-batches of one step through a pipeline.
        layers_at_once: Layers of which the input of the first is kept and which are recomputed together (Megatron's
            ``recompute_num_layers`` with the method ``uniform``).
    """

    tokens: int
    head_tokens: int | None = None
    sequences: int = 1
    accumulates: bool = True
    checkpointing: Checkpointing = "full"
    kernels: Kernels = "fused"
    head: Head = "full"
    attention: Literal["fused", "eager"] = "fused"
    delta_rule: Literal["fused", "torch"] = "fused"
    keeps_exchanges: bool = False
    mask: bool = False
    reference: int = 0
    pipeline_micro_batches: int = 0
    layers_at_once: int = 1

    @property
    def length(self) -> float:
        """Mean tokens of one sequence of a micro-batch."""
        return self.tokens / max(1, self.sequences)


class WeightSync(Struct, frozen=True, kw_only=True):
    """How weights go to the engines.

    Attributes:
        gather: ``layer``: one layer at a time; ``whole``: every rank holds the whole model; ``clone``: and copies it.
        bucket_gib: The buffer that they travel in.
        item_bytes: Bytes of a parameter on the wire.
    """

    gather: Literal["layer", "whole", "clone"] = "layer"
    bucket_gib: float = 1.0
    item_bytes: float = 2.0


class EngineSettings(Struct, frozen=True, kw_only=True):
    """How an engine (vLLM or SGLang) serves a model.

    Attributes:
        tensor_parallel: GPUs of one engine.
        memory_utilization: Share of the whole card that the engine may take.
        max_model_len: Longest sequence in tokens, prompt and response.
        max_num_seqs: Sequences that run at once.
        max_num_batched_tokens: Tokens of one step; the profile run takes as many.
        weight_bytes: Bytes of a parameter of the layers: 2 for bf16, 1 for fp8, 0.53 for 4 bits in groups.
        expert_weight_bytes: The same of routed experts, where they are stored otherwise (gpt-oss: 0.53).
        kv_bytes: Bytes of a number in the KV cache.
        weights_gib: Weights of one GPU, where they are known.
        activation_gib: Peak activations, where they are known from a log.
        non_torch_gib: Memory outside torch's allocator, where it is known from a log.
        graphs: Whether CUDA graphs are captured.
        graphs_in_budget: Whether the graphs' memory is taken from the budget, as vLLM does since 0.21.
        static_budget: SGLang's ``mem_fraction_static``: a share of what is free before loading, for weights and KV;
            activations come on top.
        concurrent_batches: Steps that are scheduled at once; windows hold the tokens of all of them.
        block_tokens: Tokens of one KV block.
        prefix_caching: Whether the cache of prompts that begin alike is kept, which vLLM does unless told otherwise.
    """

    tensor_parallel: int = 1
    memory_utilization: float = 0.9
    max_model_len: int = 4096
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    weight_bytes: float = 2.0
    expert_weight_bytes: float | None = None
    kv_bytes: float = 2.0
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    graphs: bool = True
    graphs_in_budget: bool = True
    static_budget: bool = False
    concurrent_batches: int = 1
    block_tokens: int = 16
    prefix_caching: bool = True
