"""Causes before consequences: who comes first, who is secondary, and when there are two."""

from __future__ import annotations

import pytest
from cases_hardware import watchdog
from cases_memory import OOM, traceback

from rltui.diagnose.cause import exclude_node
from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.index import CAUSES
from rltui.diagnose.sources import text_source

NO_FRAMES = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
FORWARD = traceback("m.py:forward:x = self.up(x)")
ENGINE_DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)."
ACTOR_DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
TIME_LIMIT = "slurmstepd: error: *** JOB 38 ON n3 CANCELLED AT 2026-08-19T16:30:21 DUE TO TIME LIMIT ***"
NODE_FAIL = "slurmstepd: error: *** JOB 38 ON n3 CANCELLED AT 2026-08-19T16:30:21 DUE TO NODE FAILURE ***"
TIMEOUTS = "\n".join(watchdog(rank, 1580) for rank in (0, 1, 3))
OOM_HINT = (
    "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task. There are some potential "
    "root "
    "causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."
)


def seen(*logs: str) -> list[tuple[str, bool]]:
    """Return (id, secondary) of what is found in ``logs``, each a source of its own."""
    found = diagnose([text_source(f"log{index}", log) for index, log in enumerate(logs)])
    return [(one.id, one.secondary) for one in found]


@pytest.mark.parametrize(
    ("log", "cause", "wrapper"),
    [
        (f"{FORWARD}\n{ENGINE_DEAD}", "cuda_oom_fwd_bwd", "engine_core_died"),
        (f"ModuleNotFoundError: No module named 'x'\n{ACTOR_DIED}", "env_import_broken", "ray_actor_died"),
        (f"wandb.errors.UsageError: api_key not configured (no-tty)\n{ACTOR_DIED}", "wandb_auth", "ray_actor_died"),
        (f"{TIME_LIMIT}\n{ACTOR_DIED}", "slurm_time_limit", "ray_actor_died"),
        (
            f"NVRM: Xid (PCI:0000:91:00): 79, pid=1, GPU has fallen off the bus.\n{TIMEOUTS}",
            "xid_79_fell_off_bus",
            "nccl_timeout",
        ),
        (f"{FORWARD}\n{TIMEOUTS}", "cuda_oom_fwd_bwd", "nccl_timeout"),
        (f"{TIMEOUTS}\n{NODE_FAIL}", "slurm_node_fail", "nccl_timeout"),
        (f"{NO_FRAMES}\n{TIMEOUTS}", "cuda_oom_fwd_bwd", "nccl_timeout"),
        (f"{NO_FRAMES}\n{ACTOR_DIED}", "cuda_oom_fwd_bwd", "ray_actor_died"),
        (f"{ENGINE_DEAD}\n{ACTOR_DIED}", "engine_core_died", "ray_actor_died"),
        (f"{ACTOR_DIED}\n{ENGINE_DEAD}", "ray_actor_died", "engine_core_died"),
        (
            "ValueError: No available memory for the cache blocks.\nRuntimeError: Engine core initialization failed.",
            "engine_kv_no_blocks",
            "engine_core_died",
        ),
        (
            "RuntimeError: Version mismatch: The cluster was started with:\nFailed to register worker 01 to Raylet.",
            "ray_version_mismatch",
            "ray_head_unreachable",
        ),
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0\nRuntimeError: DataLoader worker (pid 3) is "
            "killed by signal: Killed.",
            "host_oom_slurm",
            "dataloader_killed",
        ),
    ],
)
def test_a_wrapper_is_a_consequence(log: str, cause: str, wrapper: str) -> None:
    assert seen(log) == [(cause, False), (wrapper, True)]


@pytest.mark.parametrize("is_slurms_first", [True, False])
def test_two_who_saw_the_same_lack_of_memory_leave_one_cause(is_slurms_first: bool) -> None:
    ray = "(raylet) node_manager.cc:3065: 2 Workers (tasks / actors) killed due to memory pressure (OOM)"
    slurm = "slurmstepd: error: Detected 1 oom_kill event in StepId=123.batch."
    lines = [slurm, ray] if is_slurms_first else [ray, slurm]
    assert seen("\n".join(lines)) == [("ray_oom_kill", False), ("host_oom_slurm", True)]


def test_a_job_that_was_started_again_in_the_same_log_died_of_its_last_death() -> None:
    preempted = TIME_LIMIT.replace("TIME LIMIT", "PREEMPTION")
    steps = ["step: 7 loss: 0.3"] * 400
    again = "Loading checkpoint shards:   0%|          | 0/4 [00:00<?, ?it/s]"
    both = [OOM_HINT, *steps, preempted, again, *steps]
    assert seen("\n".join([*both, FORWARD])) == [("cuda_oom_fwd_bwd", False)]
    assert seen("\n".join(both)) == []
    assert seen("\n".join([*both, "x"]), FORWARD) == [("cuda_oom_fwd_bwd", False)]
    # what is written while Slurm ends the job, and other logs, are of the same start
    assert seen("\n".join([*steps, preempted, FORWARD])) == [("slurm_preempted", False), ("cuda_oom_fwd_bwd", True)]
    assert seen("\n".join([again, *steps, preempted])) == [("slurm_preempted", False)]


def test_of_causes_that_explain_each_other_in_a_ring_one_stays_a_cause() -> None:
    launch = "srun: error: task 0 launch failed: Unspecified error"
    denied = "PermissionError: [Errno 13] Permission denied: '/x/out'"
    output = "slurmstepd: error: Could not open stdout file /x/o.log: Permission denied"
    found = seen(f"{launch}\n{denied}\n{output}")
    assert [is_secondary for _, is_secondary in found] == [False, True, True]


def test_the_rank_that_is_missing_among_hundreds_is_named() -> None:
    log = "\n".join(watchdog(rank, 1580) for rank in range(600) for _ in range(2) if rank != 577)
    assert "no word of rank 577." in diagnose([text_source("log", log)])[0].summary


def test_memory_that_is_only_talked_about_explains_no_hang() -> None:
    log = f"probe 3 met: CUDA out of memory. Tried to allocate 2.50 GiB.\n{TIMEOUTS}"
    assert ("nccl_timeout", False) in seen(log)


def test_wrappers_of_two_processes_stand_side_by_side() -> None:
    assert {name for name, secondary in seen(ENGINE_DEAD, ACTOR_DIED) if not secondary} == {
        "engine_core_died",
        "ray_actor_died",
    }


def test_a_wrapper_alone_is_the_answer() -> None:
    assert seen(ENGINE_DEAD) == [("engine_core_died", False)]


def test_the_consequence_may_be_in_another_log() -> None:
    assert seen(TIMEOUTS, FORWARD) == [("cuda_oom_fwd_bwd", False), ("nccl_timeout", True)]


def test_an_error_long_before_the_time_limit_stays_a_cause() -> None:
    found = seen(f"{FORWARD}\n" + "step 1\n" * 2000 + TIME_LIMIT)
    assert found == [("slurm_time_limit", False), ("cuda_oom_fwd_bwd", False)]


def test_what_comes_after_a_kill_is_its_consequence() -> None:
    assert seen(f"{TIME_LIMIT}\n{FORWARD}") == [("slurm_time_limit", False), ("cuda_oom_fwd_bwd", True)]


def test_trouble_beside_the_training_does_not_hide_what_ended_it() -> None:
    log = f"wandb: Network error (ReadTimeout), entering retry loop.\n{FORWARD}"
    assert seen(log) == [("cuda_oom_fwd_bwd", False), ("wandb_network", True)]


def test_the_first_failing_rank_is_the_evidence() -> None:
    log = "\n".join(f"[rank{rank}]: {line}" for rank in (3, 1) for line in FORWARD.splitlines())
    diagnosis = diagnose([text_source("log", log)])[0]
    assert diagnosis.id == "cuda_oom_fwd_bwd"
    assert (diagnosis.evidence[0].rank, diagnosis.evidence[0].line) == ("3", 4)


def test_interleaved_tracebacks_are_read_by_rank() -> None:
    ranks = (FORWARD.splitlines(), traceback("torch/optim/adamw.py:step:adamw(").splitlines())
    pairs = zip(*ranks, strict=True)
    log = "\n".join(f"[rank{rank}]: {line}" for lines in pairs for rank, line in enumerate(lines))
    assert {name for name, secondary in seen(log) if not secondary} == {"cuda_oom_fwd_bwd", "cuda_oom_optimizer"}


def test_the_oom_hint_of_ray_is_no_evidence_of_memory() -> None:
    assert seen(OOM_HINT) == [("ray_actor_died", False)]
    log = f"  what():  thread: Resource temporarily unavailable [system:11]\n{OOM_HINT}"
    diagnosis = diagnose([text_source("log", log)])[0]
    assert diagnosis.id == "ray_actor_died"
    assert diagnosis.remedies[0].id == "raise-process-limit"


def test_free_memory_in_plenty_means_the_allocator_and_not_the_batch() -> None:
    log = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 7 has a total capacity of "
        "79.11 GiB "
        "of which 66.43 GiB is free.\nCUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:119"
    )
    diagnosis = diagnose([text_source("log", log)])[0]
    assert [remedy.id for remedy in diagnosis.remedies] == ["allocator-bug"]


def test_shortage_of_cache_wants_more_and_wake_up_wants_less() -> None:
    shortage = diagnose([text_source("log", "ValueError: No available memory for the cache blocks.")])[0]
    wake_up = diagnose([text_source("log", traceback("vllm/device_allocator/cumem.py:wake_up:create_and_map(h)"))])[0]
    assert shortage.remedies[0].changes[0].value > 0
    assert wake_up.remedies[0].changes[0].value < 0
    assert shortage.remedies[0].changes[0].key == wake_up.remedies[0].changes[0].key


def test_ranks_of_different_groups_may_wait_for_different_things() -> None:
    def position(rank: int, seq: int, group: str) -> str:
        return f"[PG ID {group} PG GUID {group}(x) Rank {rank}] Exception detected by watchdog at work: {seq}, last"

    lines = [watchdog(0, 5), position(0, 5, "1"), watchdog(1, 9), position(1, 9, "2")]
    assert seen("\n".join(lines)) == [("nccl_timeout", False)]
    lines[3] = position(1, 9, "1")
    assert seen("\n".join(lines)) == [("nccl_desync", False), ("nccl_timeout", True)]


def test_the_rank_that_is_missing_is_named() -> None:
    diagnosis = diagnose([text_source("log", TIMEOUTS)])[0]
    assert "no word of rank 2" in diagnosis.summary


def test_too_thin_evidence_offers_only_to_collect_more() -> None:
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 6 has 44 GiB."
    diagnosis = diagnose([text_source("log", log)])[0]
    assert diagnosis.confidence < 0.6
    assert [remedy.id for remedy in diagnosis.remedies] == ["collect-more"]
    assert "traceback" in diagnosis.remedies[0].summary


def test_an_isolated_nan_passes_and_a_run_of_them_does_not() -> None:
    line = "{{'loss': 0.5, 'grad_norm': {norm}, 'epoch': 0.1}}"
    isolated = "\n".join(line.format(norm=norm) for norm in ("0.4", "nan", "0.3", "nan", "0.2"))
    persistent = "\n".join(line.format(norm=norm) for norm in ("0.4", "nan", "nan", "nan", "0.2"))
    assert seen(isolated) == []
    assert seen(persistent) == [("nan_or_loss_scale", False)]


def test_a_caught_error_is_none() -> None:
    assert seen(f"WARNING: {OOM.split(':', 1)[1].strip()} retrying with batch size 4") == []


@pytest.mark.parametrize(("node", "excluded"), [("nid001234", ["nid001234"]), ("10.3.0.17", []), ("fd00::17", [])])
def test_slurm_is_told_to_leave_out_a_name_and_never_an_address(node: str, excluded: list[str]) -> None:
    remedy = exclude_node({"node": node}, "Leave it out.")
    assert [change.value for change in remedy.changes] == excluded
    assert remedy.commands[-1] == f"sbatch --exclude={node if excluded else '<node>'} …"
    assert (remedy.commands[0] == f"getent hosts {node}") == (not excluded)


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/data/Qwen3-8B", "/data/Qwen3-8B"),
        ("./out/lr=1e-5/.cache", "./out/lr=1e-5/.cache"),
        ("~/models/a", "~/models/a"),
        ("/data/$(reboot)", "<path>"),
        ("~root", "<path>"),
        ("./-la", "./-la"),
        ("/a b; rm -rf ~", "<path>"),
        ("-la", "<path>"),
    ],
)
def test_a_path_of_a_log_reaches_a_command_only_as_plain_words(path: str, command: str) -> None:
    remedies = CAUSES["path_missing"].remedies_for({"path": path})
    assert remedies[0].commands == (f"srun -N1 ls -l {command}",)


RAISED = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 9, in train_step\n    loss.backward()\n'
    "RuntimeError: The size of tensor a (512) must match the size of tensor b (511) at non-singleton dimension 1"
)
STEPS = "\n".join(f"step {number} loss 1.2 lr 1e-6" for number in range(4))


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (f"{STEPS}\n{RAISED}\n{TIMEOUTS}\n{TIME_LIMIT}", "tensors_unfit"),
        (f"{RAISED}\n{STEPS}\n{TIME_LIMIT}", "slurm_time_limit"),
        (f"{STEPS}\n{TIME_LIMIT}\n{RAISED}", "slurm_time_limit"),
    ],
)
def test_a_job_whose_process_failed_only_waits_for_its_time_limit(log: str, first: str) -> None:
    assert seen(log)[0][0] == first
