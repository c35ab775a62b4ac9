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
SMALL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB. GPU 2 has a total capacity of 39.39 GiB "
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 70.00 MiB (GPU 1; 31.75 GiB total capacity; {used} already "
    "allocated; 41.19 MiB free; {reserved} reserved in total by PyTorch)"
)
CACHE = "is larger than the available KV cache memory (3.71 GiB). Try increasing `gpu_memory_utilization` or"
HUB = (
    "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)\"))' "
    "thrown while requesting HEAD https://huggingface.co/org/model/resolve/main/config.json"
)
STORE = (
    "[rank3]:[W TCPStore.cpp:141] [c10d] recvValue failed on SocketImpl(fd=81, remote=[n4]:29512): failed to recv, got "
    "0 bytes"
)
POOL = "[pool] gpu 3 ran out of memory for 1.25 GiB"
LACKING = (
    'Traceback (most recent call last):\n  File "/x/xformers/__init__.py", line 57, in {}\n    import triton\n'
    "ModuleNotFoundError: No module named 'triton'"
)
REMAPPED = "    Remapped Rows\n        Correctable Error : 2\n        Uncorrectable Error : {}\n        Pending : Yes"


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
        ("WARNING 11-24 [utils.py:3] Found ulimit of 20000 and failed to raise it. This can cause fd limit errors like "
         "`OSError: [Errno 24] Too many open files`.", []),
        ("OSError: [Errno 24] Too many open files: the workers can cause that", ["too_many_open_files"]),
        ("[2026-11-24 09:28:45,451 I 18996 18996] core_worker_shutdown_executor.cc:152: Executing worker exit: "
         "SYSTEM_ERROR - Worker exits unexpectedly by a signal. SystemExit is raised (sys.exit is called). Exit code: "
         "1. The process receives a SIGTERM. (timeout: -1ms)", []),
        ("Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2.",
         ["ray_actor_died"]),
        ("Set expandable_segments to avoid torch.OutOfMemoryError: CUDA out of memory.", []),
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


@pytest.mark.parametrize(
    ("log", "causes"),
    [
        (f"{SMALL}of which 18.00 MiB is free. 38.80 GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch "
         "but unallocated.", ["engine_load_oom"]),
        (f"{SMALL}of which 18.00 MiB is free. 35.10 GiB is allocated by PyTorch, and 3.40 GiB is reserved by PyTorch "
         "but unallocated.", ["cuda_oom_fwd_bwd"]),
        (OLD.format(used="6.02 GiB", reserved="6.40 GiB"), ["cuda_oom_gpu_shared"]),
        (OLD.format(used="28.15 GiB", reserved="30.90 GiB"), ["cuda_oom_fwd_bwd"]),
        (CACHE, ["engine_kv_max_len"]),
        ("KV cache memory: 41.00 GiB, larger than the available host memory (32.00 GiB)", []),
        (f"{ENGINE_EXIT}\nTraceback (most recent call last):\n  File \"/opt/grpo.py\", line 91, in <module>\n"
         "    trainer.train()", ["engine_core_died"]),
        (f"{ENGINE_EXIT}\nsaved 64 samples", []),
        ("The requested size of 60000000000 exceeds the capacity of /dev/shm.", ["ray_shm_too_small"]),
        ("The object store's size stays below the capacity of /dev/shm.", []),
        ("RuntimeError: PyTorch and torchaudio were compiled with different\nCUDA versions.",
         ["abi_mismatch"]),
        ("PyTorch and torchvision were compiled with CUDA 12.4", []),
        ("ModuleNotFoundError: No module named 'deep_ep'", ["env_import_broken"]),
        ("WARN  12:01:07 kernels.py:12] ModuleNotFoundError: No module named 'deep_ep'", []),
        ("WARNING 08-02 12:01:07 [rotary.py:31] ModuleNotFoundError: No module named 'deep_ep'", []),
        ("WARNING 08-02 12:01:07 [__init__.py:12] Failed to import from vllm._C with ImportError('libcudart.so.11.0: "
         "cannot open shared object file')", ["env_import_broken"]),
        ("WARNING 08-02 12:01:07 [__init__.py:12] Failed to import from vllm._C with ImportError('libcuda.so.1: "
         "cannot open shared object file')", []),
        ("Finish rollout: ['My job prints torch.OutOfMemoryError: CUDA out of memory.']", []),
        ("Finish rollout: 64 samples\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
         ["cuda_oom_fwd_bwd"]),
        ("|                           | Fail - GPUs: 2, 6                              |", ["gpu_diag_fail"]),
        ("|                           | Pass - GPUs: 2, 6                              |", []),
        ("|ERR!   68C    P2     99W / 130W |       1MiB /  20475MiB |     93%      Default |", ["gpu_diag_fail"]),
        ("| N/A   29C    P0   ERR! / 250W |    593MiB / 16160MiB |      0%      Default |", []),
        ("    GPU Recovery Action                   : Reset", ["gpu_diag_fail"]),
        ("    GPU Recovery Action                   : None", []),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x61:0x56:1689)", ["xid_119_gsp"]),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x72:1568)", ["gpu_diag_fail"]),
        ("KeyError: MetadataIndex(fqn='decoder.weight', offset=torch.Size([2, 0]), index=3)", ["ckpt_broken"]),
        ("reading MetadataIndex(fqn='decoder.weight', offset=torch.Size([2, 0]), index=3)", []),
        ("ray.tune.error.TuneError: Insufficient cluster resources to launch trial: trial requested 11 CPUs",
         ["ray_pg_infeasible"]),
        ("cluster resources to launch trials with: 11 CPUs", []),
        ("24/1752 [01:08<1:22:56]  [rank5]:[E602 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operati",
         ["nccl_timeout"]),
        ("[rank5] the watchdog has not caught collective operations up", []),
        (REMAPPED.format(1), ["gpu_diag_fail"]),
        (REMAPPED.format(0), []),
        ("srun: error: task 3 launch failed: Plugin initialization failed", ["slurm_launch_failed"]),
        ("srun: task 3 launched", []),
        ("RuntimeError: The client socket has failed to connect to any network address of (n4, 29512).",
         ["gloo_timeout"]),
        ("[W] The client socket has failed to connect to [n4]:29512 (errno: 111 - Connection refused).", []),
        ("trying batch size 16 ... failed (CUDA out of memory. Tried to allocate 4.00 GiB)\ntrying batch size 8 ... "
         "ok", []),
        ("batch size 16\nRuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB", ["cuda_oom_fwd_bwd"]),
        ("worker process 812 received signal SIGKILL", ["host_oom_slurm"]),
        ("Unable to shutdown process 812 via SIGTERM, forcefully exiting via SIGKILL", []),
        ("worker process 812 does not end, sending SIGKILL", []),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", ["gpu_arch_unsupported"]),
        ("no FlashAttention (only supports Ampere GPUs or newer), using the default kernel", []),
        ("WARNING 08-02 12:01:07 [quant.py:9] FP8 is only supported on GPUs with compute capability 8.9", []),
        ("ValueError: the tokenizer's `chat_template` is null", ["chat_template_missing"]),
        ("{'chat_template': null, 'chat_template_kwargs': null}", []),
        ("slurmstepd: error: Exceeded step memory limit at some point.", ["host_oom_slurm"]),
        ("slurmstepd: error: Exceeded job memory limit at some point. Job may have been partially swapped out to "
         "disk.", []),
        (f"{STORE}\nException raised from recvBytes", ["gloo_timeout"]),
        (f"{STORE}\nException raised from recvBytes\n[rank3]:[W ProcessGroupNCCL.cpp:1783] Failed to check the flag on "
         "TCPStore, (maybe TCPStore server has shut down too early), with error: failed to recv, got 0 bytes", []),
        ("requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.",
         ["hf_offline_miss"]),
        ("Error while downloading from https://huggingface.co/org/x/model.safetensors: HTTPSConnectionPool("
         "host='huggingface.co', port=443): Read timed out.\nTrying to resume download...", []),
        (f"{HUB}\nWARNING:huggingface_hub.utils._http:Retrying in 4s [Retry 3/5].", []),
        (f"{HUB}\nWARNING:huggingface_hub.utils._http:no retries left", ["hf_offline_miss"]),
        (f"{POOL}, giving up", ["cuda_oom_fwd_bwd"]),
        (f"{POOL}; this is not an error, a smaller piece is tried", []),
        (LACKING.format("_is_triton_available"), []),
        (LACKING.format("compile_kernels"), ["env_import_broken"]),
        ("step 7 best_reward: 0.4, policy_loss: inf", ["nan_or_loss_scale"]),
        ('{"best_eval_loss": Infinity, "lowest-loss": inf, "bad_steps": 0}', []),
        ("best_loss: nan", ["nan_or_loss_scale"]),
    ],
)  # fmt: skip
def test_the_same_words_of_another_outcome(log: str, causes: list[str]) -> None:
    assert [one.id for one in diagnose([text_source("log", log)])] == causes


LISTED = "\n".join(
    [
        "class Shards:",
        "    def __init__(self, rows, parts):",
        "        self.rows = rows",
        "        self.parts = parts",
        '        raise ValueError(f"{rows} rows must be divisible by world_size")',
    ]
)
TORCH = "[rank0]:{}0227 05:11:01.420000 42 /w/torch/_inductor/codecache.py:1021] [0/0] {}"
CACHED = ("Traceback (most recent call last):", '  File "/w/c.py", line 9, in load', "    yield pickle.loads(content)")
DAMAGED = "_pickle.UnpicklingError: pickle data was truncated"


@pytest.mark.parametrize(
    ("log", "causes"),
    [
        (LISTED, []),
        ('  File "/w/c.py", line 9, in load\n' + LISTED.splitlines()[-1], ["engine_tp_heads"]),
        ("\n".join(TORCH.format("W", text) for text in (*CACHED, DAMAGED)), []),
        ("\n".join((*CACHED, DAMAGED)), ["ckpt_broken"]),
        ("WARNING serving_chat.py:335] No chat template provided. Chat API will not work.", []),
        ("ValueError: No chat template provided. Please pass one.", ["chat_template_missing"]),
    ],
)
def test_source_that_is_shown_and_errors_that_are_caught_are_no_failures(log: str, causes: list[str]) -> None:
    assert [one.id for one in diagnose([text_source("log", log)])] == causes


def test_a_process_that_gave_up_did_not_reach_the_head_afterwards() -> None:
    checked = "gcs_client.cc:121: Check failed: status.ok() Failed to connect to GCS at address 10.4.0.9:6379"
    again = "Connected to Ray cluster. View the dashboard at 10.4.0.9:8265"
    tried = "WARNING utils.py:1416 -- Unable to connect to GCS at 10.4.0.9:6379. Check that Ray is running."
    assert [one.id for one in diagnose([text_source("log", f"{checked}\n{again}")])] == ["ray_head_unreachable"]
    assert not diagnose([text_source("log", f"{tried}\n{again}")])


def remedies(log: str) -> list[str]:
    return [remedy.id for remedy in diagnose([text_source("log", log)])[0].remedies]


def test_the_hint_at_memory_is_not_believed_where_threads_ran_out() -> None:
    assert remedies(f"{THREADS}\n{HINT}")[0] == "raise-process-limit"
    assert "raise-process-limit" not in remedies(HINT)


def test_a_shortage_with_plenty_free_is_the_allocators() -> None:
    assert remedies(f"torch.OutOfMemoryError: {BOTH.format(free='66.43')} cumem_allocator.cpp:119") == ["allocator-bug"]
    assert remedies(f"torch.OutOfMemoryError: {BOTH.format(free='0.01')} cumem_allocator.cpp:119") != ["allocator-bug"]
