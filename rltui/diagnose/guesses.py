"""What a log hints at where no wording and no exception says why: guesses, never sure causes.

Two things stand in logs without an error that anybody knows. Some functions do but one thing and fail in one way, so
the frames of a traceback that is cut off before its exception tell what was about to be raised. And components complain
at an error level of their own: what NCCL or the kernel's driver warns of is theirs, whatever the words are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.diagnose.answers import ANSWERS
from rltui.diagnose.first_exception import MOST_LINES_BELOW
from rltui.diagnose.progress import GOES_ON
from rltui.diagnose.wording import Hit, Reading, Wording, compiled

if TYPE_CHECKING:
    from rltui.diagnose.matches import Match, Matches

STATE = "hint"

GUESS = 0.5
"""Below ``SURE_ENOUGH``: nothing is changed on such a word alone."""

FAILS_BY = {
    "fetch_sub_module": "cuda_oom_zero3_gather",
    "pre_sub_module_forward_function": "cuda_oom_zero3_gather",
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
"""What a function fails by, as its source shows: DeepSpeed, torch, vLLM, Ray, multiprocessing."""

_FAILED = r"(?:fail|error|couldn't|could not|unable|not found|invalid|unexpected|timed? ?out|is lost)"
_OF_FABRIC = r"(?:NET/IB|NET/OFI|ibv_|rdma|mlx5|\befa\b)"

_LAUNCHERS = r"(?:torchrun|accelerate|deepspeed|vllm|sglang|axolotl|swift|trl)"

COMPLAINTS = (
    ("nccl warn", rf"(?i)NCCL WARN (?=.{{0,40}}{_OF_FABRIC}).{{0,200}}{_FAILED}", "nccl_ib_error"),
    ("nccl warn", rf"(?i)NCCL WARN (?!.{{0,40}}{_OF_FABRIC}).{{0,200}}{_FAILED}", "nccl_system_error"),
    ("nvrm", rf"(?i)NVRM: .{{0,200}}{_FAILED}", "gpu_diag_fail"),
    ("health check failed", r"(?i)\bNHC\b.{0,40}health check failed", "gpu_diag_fail"),
    ("sbatch: error", "", "slurm_submit_reject"),
    ("salloc: error", "", "slurm_submit_reject"),
    ("fatal: ", r"^(?:srun|sbatch|salloc): fatal: ", "slurm_submit_reject"),
    (  # it also complains of what it then does without: a display, a directory
        "srun: error: ",
        r"^srun: error: (?=.{0,120}\b(?:steps?|tasks?|allocate|allocation|launch\w*|GRES)\b)"
        r"(?!x11|.{0,120}(?:[Ee]xited|Terminated|Killed|[Tt]imed? out|aborted))",
        "slurm_step_create",
    ),
    (
        "slurmstepd: error: ",
        r"^slurmstepd: error: .{0,40}(?:exec|setup|launch|join).{0,200}(?:No such file|[Ff]ailed|denied)",
        "slurm_launch_failed",
    ),
    (
        "processgroupnccl",
        r"\[E\d* ?.{0,40}ProcessGroupNCCL\.cpp:\d+\].{0,200}(?i:time(?:d )?out|abort|hang)",
        "nccl_timeout",
    ),
    ("wandb: error ", r"wandb: ERROR .{0,200}(?i:key|log ?in|auth|permission|40[13])", "wandb_auth"),
    ("error: ", rf"^(?:[\w-]{{2,40}}\.py|{_LAUNCHERS}): error: ", "settings_rejected"),  # argparse
    ("could not find a version that satisfies", r"^ERROR: ", "env_import_broken"),  # pip
    ("error: pyxis", "", "container_start"),
    ("unixhttpconnectionpool", r"(?i)timed out|refused|error", "container_start"),  # docker's socket, asked by Python
    # the logger of docker, podman and their like
    *((f"{level[:4].lower()}[", rf"^{level[:4]}\[\d+\] ", "container_start") for level in ("ERROR", "FATAL")),
    ("curl: (", r"^curl: \((?:5|6|7|28|35|52|56|60)\) (?!.*\b(?:localhost|127\.0\.0\.1))", "hf_offline_miss"),
    (
        "permission denied",
        r"(?i)\b(?:error|fail\w*|fatal|cannot|can't|could ?n[o']t|unable)\b.{0,200}: Permission denied",
        "access_denied",
    ),
    (
        "open",
        r"(?i)\b(?:cannot|can't|could ?n[o']t|unable to|failed to) open (?:[a-z]+ )?file\b\W+\w"
        r"(?!.{0,200}\b(?:denied|too many)\b)",
        "path_missing",
    ),
    # of a program that the shell started: what the system answered it, and how it ended
    ("no such file or directory", r"^No such file or directory: ['\"]", "path_missing"),
    # over what is left of a line that showed progress
    ("killed", r"^Killed(?:\s{2,}.*|\s.*\d ?/ ?\d.*)?$", "host_oom_slurm"),
    ("cannot be scheduled right now", r"It requires \{", "ray_pg_infeasible"),
)
"""Who complains, and the cause that most of its complaints are of."""

_EXCUSED = r"(?i)\bignor|disabled?|disabling|fall(?:ing)? ?back|\bretry|non-?fatal|correctable"


def _hint(cause: str, hit: Hit) -> Reading:
    return Reading(GUESS, fields={"hint": cause or FAILS_BY[hit.groups["function"]]})


_NO_COMPLAINT = (
    r"|\b(?:warn\w*|info|debug)\b|\[W\d* |^slurmstepd: error|prolog|\bwill not be\b|\boptional"
    r"|^(?:rm|rmdir|unlink|mkdir|ln|ls|kill|df|du|stat|which|find|grep|sysctl): "
)
"""Lines at a lower level, and of what a job goes on without: looking around and tidying up, too."""


_GOES_ON = rf"(?i){GOES_ON.pattern}|\btry(?:ing)? (?:again|to resume)\b"


def _answer(cause: str, place: int, hit: Hit) -> Reading | None:
    if any(compiled(_GOES_ON).search(line.text) for line in hit.context.after(MOST_LINES_BELOW)):
        return None
    return Reading(GUESS, fields={"hint": cause, "answer": str(place)})


WORDINGS = (
    Wording(
        anchor=".py",
        words=tuple(sorted({max(name.split("_"), key=len) for name in FAILS_BY})),
        pattern=rf"\.py(?:\", line \d+,|:\d+) in (?P<function>{'|'.join(FAILS_BY)})\s*$",
        check=partial(_hint, ""),
    ),
    *(
        Wording(anchor=anchor, pattern=pattern, unless=_EXCUSED, check=partial(_hint, cause))
        for anchor, pattern, cause in COMPLAINTS
    ),
    *(
        Wording(
            anchor="",
            words=tuple(answer.words.split()),
            pattern=answer.pattern,
            unless=_EXCUSED + _NO_COMPLAINT + (answer.unless and f"|{answer.unless}"),
            check=partial(_answer, answer.cause, place),
        )
        for place, answer in enumerate(ANSWERS)
    ),
)


def guess(matches: Matches) -> Match | None:
    """Return what says most of why, as a match of the cause that it hints at.

    The innermost telling frame, else the first who complains, else the most telling answer from finite lists.
    """
    hints = matches.of(STATE)
    frames = [hint for hint in hints if "function" in hint.fields]
    complaints = [hint for hint in hints if "answer" not in hint.fields]
    told = frames[-1:] or complaints[:1] or sorted(hints, key=lambda hint: int(hint.fields["answer"]))[:1]
    return structs.replace(told[0], cause=told[0].fields["hint"], confidence=GUESS) if told else None
