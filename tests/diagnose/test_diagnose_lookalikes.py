"""Pairs of logs that a search for words cannot tell apart: the same words, and another meaning."""

from __future__ import annotations

import pytest
from cases_hardware import watchdog
from cases_memory import traceback

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import text_source

DISABLED = "srun: Job 77 step creation temporarily disabled, retrying (Requested nodes are busy)"
STILL = "srun: Job 77 step creation still disabled, retrying (Requested nodes are busy)"
STEP = "{{'loss': 0.5, 'grad_norm': {norm}, 'epoch': 0.1}}"
ENGINE_EXIT = (
    "ERROR 01-16 [core_client.py:605] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client."
)
DONE = "Processed prompts: 100%|##########| 6/6 [00:00<00:00, 11.1it/s]"
HINT = (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: End of "
    "file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory "
    "usage."
)
THREADS = "  what():  thread: Resource temporarily unavailable [system:11]"
BOTH = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 7 has a total capacity of 79.11 GiB of which {free} "
    "GiB is free."
)


def norms(*values: str) -> str:
    return "\n".join(STEP.format(norm=value) for value in values)


def wait(rank: int, op: str) -> str:
    return watchdog(rank, 1580).replace("ALLREDUCE", op)


@pytest.mark.parametrize(
    ("log", "causes"),
    [
        (f"{DISABLED}\nsrun: Step created for job 77", []),
        (f"{DISABLED}\n{STILL}\n{STILL}", ["slurm_step_create"]),
        (norms("0.4", "nan", "0.3", "0.2", "nan", "0.2"), []),
        (norms("0.4", "nan", "nan", "nan"), ["nan_or_loss_scale"]),
        (f"{DONE}\nPrompt: 'a'\n{ENGINE_EXIT}", []),
        (f"step 4\n{ENGINE_EXIT}\nsrun: error: n3: task 0: Exited with exit code 1", ["engine_core_died"]),
        (HINT, ["ray_actor_died"]),
        (f"{THREADS}\n{HINT}", ["ray_actor_died"]),
        (f"{wait(0, 'ALLREDUCE')}\n{wait(1, 'ALLREDUCE')}", ["nccl_timeout"]),
        (f"{wait(0, 'ALLREDUCE')}\n{wait(1, 'BROADCAST')}", ["nccl_desync", "nccl_timeout"]),
        ("WARNING CUDA out of memory in batch 7, skipping this batch\nstep 8", []),
        (traceback("m.py:forward:x = self.up(x)"), ["cuda_oom_fwd_bwd"]),
        ("(autoscaler) Error: No available node types can fulfill resource request {'node:10.0.0.1': 0.001}.", []),
        ("(autoscaler) Error: No available node types can fulfill resource request {'GPU': "
         "8.0}.", ["ray_pg_infeasible"]),
        ("(autoscaler) The following resource request cannot be scheduled right now: {'CPU': 1.0}.", []),
        ("(autoscaler) The following resource request cannot be scheduled right now: {'GPU': "
         "1.0}.", ["ray_pg_infeasible"]),
        ("429 Client Error: Too Many Requests for url: https://huggingface.co/x\nRetrying in 1s [Retry "
         "1/5].", ["hf_rate_limit"]),
        ("HTTP Error 429 thrown while requesting GET https://huggingface.co/x\nRetrying in 1s [Retry 1/5].", []),
        ("huggingface.co timed out' thrown while requesting HEAD https://huggingface.co/x\nRetrying in 2s [Retry "
         "2/5].", []),
        ("huggingface.co timed out' thrown while requesting HEAD https://huggingface.co/x", ["hf_offline_miss"]),
        ("RuntimeError: CUDA out of memory. Tried to allocate 9.00 GiB.", ["cuda_oom_fwd_bwd"]),
        ("[response] RuntimeError: CUDA out of memory. Tried to allocate 9.00 GiB.", []),
        ("training finished\n(raylet) A worker died or was killed while executing a task by an unexpected system "
         "error.", []),
        ("step 9\n(raylet) A worker died or was killed while executing a task by an unexpected system "
         "error.", ["ray_actor_died"]),
    ],
)  # fmt: skip
def test_the_same_words_mean_something_else(log: str, causes: list[str]) -> None:
    assert [one.id for one in diagnose([text_source("log", log)])] == causes


def remedies(log: str) -> list[str]:
    return [remedy.id for remedy in diagnose([text_source("log", log)])[0].remedies]


def test_the_hint_at_memory_is_not_believed_where_threads_ran_out() -> None:
    assert remedies(f"{THREADS}\n{HINT}")[0] == "raise-process-limit"
    assert "raise-process-limit" not in remedies(HINT)


def test_a_shortage_with_plenty_free_is_the_allocators() -> None:
    assert remedies(f"torch.OutOfMemoryError: {BOTH.format(free='66.43')} cumem_allocator.cpp:119") == ["allocator-bug"]
    assert remedies(f"torch.OutOfMemoryError: {BOTH.format(free='0.01')} cumem_allocator.cpp:119") != ["allocator-bug"]
