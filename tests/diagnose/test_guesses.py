"""Where no wording and no exception says why: a traceback's last frame, or who complains, is a guess and never sure."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import text_source

CUT_OFF = """\
[rank0]:   File "/opt/site-packages/deepspeed/runtime/zero/parameter_offload.py", line 463, in pre_sub_module_forward
[rank0]:     param_coordinator.fetch_sub_module(sub_module, forward=True)
[rank0]:   File "/opt/deepspeed/runtime/zero/partitioned_param_coordinator.py", line 284, in fetch_sub_module
"""


@pytest.mark.parametrize(
    ("rest", "causes"),
    [
        ("", [("cuda_oom_zero3_gather", 0.5)]),
        ("[rank0]: LookupError: strange", [("program_failed", 0.62)]),
        (
            "slurmstepd: error: *** STEP 8.0 ON n1 CANCELLED AT 2026-03-02 DUE TO TIME LIMIT ***",
            [("slurm_time_limit", 0.95)],
        ),
    ],
    ids=["nothing else", "its exception", "a cause"],
)
def test_where_a_traceback_is_cut_off_its_function_is_a_guess(rest: str, causes: list[tuple[str, float]]) -> None:
    found = diagnose([text_source("log", CUT_OFF + rest)])
    assert [(one.id, one.confidence) for one in found if not one.secondary] == causes


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("ip-3:9:9 [0] init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data available", "nccl_ib_error"),
        ("n1:7:7 [2] graph/xml.h:101 NCCL WARN Attribute arch of node cpu not found", "nccl_system_error"),
        ("srun: error: odd layout of the step", "slurm_step_create"),
        ("srun: error: n3: task 7: Exited with exit code 1", None),
        ("srun: error: x11: no local DISPLAY defined, skipping this task", None),
        ("slurmstepd: error: setup of the task's devices failed: odd", "slurm_launch_failed"),
        ("slurmstepd: error: Unable to create TMPDIR [/scratch/u/12]: No such file or directory", None),
        ("srun: fatal: odd option", "slurm_submit_reject"),
        ("[E4 ProcessGroupNCCL.cpp:1537] [PG 1 Rank 11] Timeout at work 15734", "nccl_timeout"),
        ("train.py: error: no layer is left", "settings_rejected"),
        ("vllm: error: no such model", "settings_rejected"),
        ("tar: error: is not recoverable: exiting now", None),
        ("ninja: error: loading 'build.ninja': odd", None),
        ("[   38.77] NVRM: rm_init_adapter failed for device bearing minor number 0", "gpu_diag_fail"),
        ("n1:7:7 [2] NCCL WARN NET/OFI Unable to load the tuner, falling back to the internal one", None),
        ("[   38.77] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05", None),
    ],
)
def test_what_a_component_complains_of_is_a_guess(line: str, cause: str | None) -> None:
    found = [(one.id, one.confidence) for one in diagnose([text_source("log", line)])]
    assert found == ([(cause, 0.5)] if cause else [])
