"""A traceback that the log cuts off before its exception: where it stands says what was about to be raised.

Some functions do but one thing that fails in one way: they look whether the KV cache suffices, or take a card's memory
back. Where a log ends among their frames and nothing else says why, they are a guess, never a sure cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from rltui.diagnose.wording import Wording

if TYPE_CHECKING:
    from rltui.diagnose.matches import Match, Matches

STATE = "frame_left"

GUESS = 0.5
"""Below ``SURE_ENOUGH``: nothing is changed on the word of a frame alone."""

FAILS_BY = {
    "fetch_sub_module": "cuda_oom_zero3_gather",
    "__all_gather_params": "cuda_oom_zero3_gather",
    "_multi_tensor_adam": "cuda_oom_optimizer",
    "_multi_tensor_adamw": "cuda_oom_optimizer",
    "create_and_map": "oom_weight_sync",
    "entropy_from_logits": "cuda_oom_logits",
    "_check_enough_kv_cache_memory": "engine_kv_max_len",
    "_validate_model_input": "engine_prompt_too_long",
    "wait_for_engine_startup": "engine_core_died",
    "check_version_info": "ray_version_mismatch",
    "_batch_assertion": "ds_batch_assert",
    "recv_handle": "too_many_open_files",
    "_error_if_any_worker_fails": "dataloader_killed",
    "_open_zipfile_writer": "disk_full",
}
"""What a function fails by, as its source shows: DeepSpeed, torch, vLLM, Ray, huggingface_hub, multiprocessing."""

WORDINGS = (
    Wording(
        anchor=".py",
        words=tuple(sorted({max(name.split("_"), key=len) for name in FAILS_BY})),
        pattern=rf"\.py(?:\", line \d+,|:\d+) in (?P<function>{'|'.join(FAILS_BY)})\s*$",
    ),
)


def cut_off_cause(matches: Matches) -> Match | None:
    """Return the innermost telling frame, as a match of the cause that its function fails by."""
    frames = matches.of(STATE)
    if not frames:
        return None
    last = max(frames, key=lambda frame: frame.order)
    return structs.replace(last, cause=FAILS_BY[last.fields["function"]], confidence=GUESS)
