"""Which GPU memory ran out, by the frames of the traceback: one error message has seven causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.diagnose.wording import compiled

if TYPE_CHECKING:
    from rltui.diagnose.frames import Frame


class FramesOf(Struct, frozen=True):
    """What one cause shows among the frames (path, function and code of each in one string)."""

    cause: str
    pattern: str
    unless: str = ""
    """A pattern of frames that speaks against it."""
    fields: dict[str, str] = {}


# In this order: a weight update gathers parameters, an engine's profile run computes logits, and so on; the outer
# purpose is what has to change.
FRAMES = (
    FramesOf(
        "oom_weight_sync",
        r"wake_up|backload|onload_|cumem|create_and_map|resume_memory_occupation|memory_saver|"
        r"update_weights?(?:\b|_(?!decay))|sync_weights?|broadcast_to_vllm|sharding_manager|weights_manager|fsdp_vllm|megatron_vllm|rollout_mode|weight_sync|"
        r"_move_model_to_vllm|gather_whole_model|load_weights_from|update_named_param|ipc_engine|"
        r"get_per_tensor_param|per_tensor_generator",
    ),
    FramesOf(
        "engine_load_oom",
        r"\bvllm/(?:v1|worker|model_executor|engine|entrypoints|executor|attention|compilation|spec_decode|lora)\b|"
        r"sglang/srt/|EngineCore|llm_engine|model_runner",
        unless=r"dp_actor|megatron_actor|update_actor|update_policy|compute_log_prob|\bbackward\b|training_step",
    ),
    FramesOf(
        "cuda_oom_optimizer",
        r"torch/optim/|_multi_tensor_\w+|_single_tensor_adam|\boptimizer\.step|optimizer_step|fused_adam|FusedAdam|"
        r"bitsandbytes/optim|initialize_optimizer_states|init_optimizer_states|_init_group|adamw?\.py|Adam\w*\.step|"
        r"distributed_fused_adam|apex/optimizers|_take_model_step|_optimizer_step|distrib_optimizer|"
        r"create_fp32_partitions|_configure_\w*optimizer|_setup_for_real_optimizer",
        unless="initialize_ds_offload",
    ),
    FramesOf(
        "cuda_oom_zero3_gather",
        r"fetch_sub_module|all_gather_coalesced|GatheredParameters|partition_parameters|partitioned_param_coord|"
        r"__all_gather_params|_all_gather_params|_allgather_params|parameter_offload|_unshard\b|unshard_params|"
        r"_all_gather_flat_param|_alloc_padded_unsharded|fsdp_param_group|summon_full_params|all_gather_into_tensor|"
        r"foreach_all_gather|_pre_state_dict_hook|full_state_dict",
    ),
    FramesOf(
        "cuda_oom_logits",
        r"log_softmax|logsumexp|entropy_from_logits|compute_entropy|logprobs_from_logits|log_probs?_from_logits|"
        r"selective_log_softmax|compute_log_?probs?|get_batch_logps|get_per_token_logps|_get_logps|cross_entropy|"
        r"lm_head|logits\.float|logits = |compute_logits|ForCausalLMLoss|vocab_parallel|gather_log_probs|"
        # accelerate makes float32 of what a model returns, which is its logits
        r"fused_linear_cross_entropy|logits_to_logprobs|\b_convert_to_fp32",
    ),
    FramesOf("cuda_oom_zero3_gather", r"\b_?all_?gather\b"),
    FramesOf("cuda_oom_logits", r"\bsoftmax\b", unless=r"attention|attn|_sdpa|router|gate|moe"),
    FramesOf("cuda_oom_fwd_bwd", r"reduce_bucket|allreduce_bucket|ipg_bucket|reduce_ipg", fields={"bucket": "yes"}),
    FramesOf(
        "cuda_oom_fwd_bwd", r"forward|backward|training_step|update_actor|update_critic|_call_impl|compute_loss|mlp"
    ),
)


def cause_by_frames(frames: tuple[Frame, ...]) -> FramesOf | None:
    """Return the row that ``frames`` speak for, or None where they say nothing."""
    whole = "\n".join(map(str, frames))
    for row in FRAMES:
        if compiled(row.pattern).search(whole) and not (row.unless and compiled(row.unless).search(whole)):
            return row
    return None
