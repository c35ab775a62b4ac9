"""What was answered, with the run at work below, ended no run; either of both alone says too little."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.progress import sign_of_life
from rltui.diagnose.sources import text_source

STEPS = "step 401 | loss 1.93 | 5120 tok/s\nstep 402 | loss 1.91 | 5130 tok/s\n"
KILLED = (
    "E0612 09:14:03.220000 7712 torch/distributed/elastic/multiprocessing/api.py:870] failed (exitcode: -9) "
    "local_rank: 2 (pid: 7715) of binary: /opt/bin/python\n"
)
RESTART = (
    "I0612 09:14:03.402000 7712 torch/distributed/elastic/agent/server/api.py:866] [default] Worker group FAILED. "
    "2/3 attempts left; will restart worker group\n"
)
OUT_OF_TIME = "slurmstepd: error: *** STEP 77.0 ON n01 CANCELLED AT 2026-01-03T10:00:01 DUE TO TIME LIMIT ***\n"
PREEMPTED = "slurmstepd: error: *** JOB 77 ON n01 CANCELLED AT 2026-01-03T10:00:01 DUE TO PREEMPTION ***\n"
NO_DRIVER = (
    "/opt/env/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\n"
)
NEARLY_FULL = (
    "(raylet) [2026-03-01 10:12:00,331 E 551 581] (raylet) file_system_monitor.cc:116: /tmp/ray/session_1 is over 95% "
    "full, available space: 21.1 GB; capacity: 900.0 GB. Object creation will fail if spilling is required.\n"
)
OUT_OF_MEMORY = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def causes(log: str) -> list[str]:
    """Return the causes that are found in ``log``."""
    return [found.id for found in diagnose([text_source("log", log)])]


@pytest.mark.parametrize(
    "log",
    [
        KILLED + RESTART + STEPS,
        OUT_OF_TIME + "scontrol requeue 77\nresumed from /ckpt/step_400\n" + STEPS,
        "wandb: Network error (ReadTimeout), entering retry loop.\n" + STEPS,
        "Error loading checkpoint /c/step_9: PytorchStreamReader failed reading zip archive: failed finding central "
        "directory\nfalling back to the checkpoint before it\n" + STEPS,
        OUT_OF_MEMORY + "[rank3]: skipping batch 400\n" + STEPS,
        NEARLY_FULL + STEPS + NEARLY_FULL,  # Ray says so every ten seconds
        NO_DRIVER + STEPS,  # who warns goes on: here on the CPU, as somebody may want
        "OSError: [Errno 98] Address already in use\nport 29500 is taken, using 29501\n"
        "INFO:     Uvicorn running on http://0.0.0.0:29501 (Press CTRL+C to quit)\n",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nTrying batch size: 16\n"
        "  1%|          | 12/1250 [00:10<17:31,  1.18it/s]\n  1%|          | 13/1250 [00:11<17:30,  1.18it/s]\n",
    ],
)
def test_what_was_answered_ended_no_run(log: str) -> None:
    """A restart, a requeue, another try, a way round or a mere warning, and then steps or a server."""
    assert not causes(log)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (KILLED + RESTART, "host_oom_slurm"),  # nothing says that the next try came to anything
        (STEPS + KILLED + RESTART, "host_oom_slurm"),
        (PREEMPTED + "requeued job 77\n" + STEPS, "slurm_preempted"),  # the job that is being ended says so
        (OUT_OF_MEMORY + "[rank0]: skipping batch 400\n" + STEPS, "cuda_oom_fwd_bwd"),  # of another rank
        (STEPS + NO_DRIVER, "driver_mismatch"),
        (STEPS + NEARLY_FULL, "ray_disk_full"),
        (NEARLY_FULL + STEPS + "ray.exceptions.OutOfDiskError: Local disk is full\n", "ray_disk_full"),
        (NO_DRIVER + STEPS + OUT_OF_MEMORY, "cuda_oom_fwd_bwd"),
        (OUT_OF_TIME + STEPS, "slurm_time_limit"),  # what a process kept back it writes as it ends
        (OUT_OF_TIME + "resumed from /ckpt/step_400\n" + STEPS + OUT_OF_TIME, "slurm_time_limit"),
    ],
)
def test_an_answer_or_steps_alone_leave_a_cause(log: str, cause: str) -> None:
    """Without an answer, without work below it, or with the same failure below both."""
    assert causes(log)[0] == cause


def test_a_far_end_counts_with_its_own_line_numbers() -> None:
    """The end of a log that is longer than what is kept of it shows the run at work as well."""
    before = "".join(f"step {step} | loss 1.9\n" for step in range(2000))
    after = "".join(f"step {step} | loss 1.9\n" for step in range(2000, 4000))
    assert not causes(before + KILLED + RESTART + after)
    assert causes(before + after + KILLED + RESTART) == ["host_oom_slurm"]


@pytest.mark.parametrize(
    ("lines", "index"),
    [
        (["step 1 loss 2.0", "step 2 loss 1.9"], 0),
        (["Epoch 3 step 10: loss=2", "saved", "Epoch 3 step 20: loss=1"], 0),
        (
            [
                " iteration 10/ 100 | lm loss: 2.0 | number of nan iterations: 0 |",
                " iteration 20/ 100 | lm loss: 1.9 |",
            ],
            0,
        ),
        (["== 8 passed, 1 warning in 61.20s =="], 0),
        (["== 1 failed, 7 passed in 61.20s =="], None),
        (["step 2 loss 1.9", "step 1 loss 2.0"], None),
        (["step 1 loss 2.0", "step 2 loss nan"], None),
        (
            [
                "Loading checkpoint shards:  50%|     | 1/2 [00:01<00:01]",
                "Loading checkpoint shards: 100%| | 2/2 [00:02<0]",
            ],
            None,
        ),
        (["step 1 loss 2.0"], None),
    ],
)
def test_two_finite_steps_or_a_server_are_a_sign(lines: list[str], index: int | None) -> None:
    """Where the run is seen at work."""
    assert sign_of_life(lines) == index
