"""The faults of a night, and what is right after each."""

from __future__ import annotations

TRACKER = "checkpoints/latest_checkpointed_iteration.txt"
LAST_WORDS = {
    "collective timed out": "[rank3]:[E1123 10:00:00.1 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=84, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
    "600021 milliseconds before timing out.",
    "head lost": "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by "
    "setting `--address` flag or `RAY_ADDRESS` environment variable.",
    "port taken": "RuntimeError: The server socket has failed to listen on any local network address. "
    "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    "module missing": "ModuleNotFoundError: No module named 'flash_attn'",
    "out of GPU memory": '  File "/w/verl/workers/actor/dp_actor.py", line 400, in update_policy\n    loss.backward()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.80 GiB memory in use.",
    "CUDA gave up": "torch.AcceleratorError: CUDA error: unspecified launch failure",
    "disk full": "OSError: [Errno 28] No space left on device: 'checkpoints/global_step_20/actor/model_rank_0.pt'",
    "nobody knows": "AssertionError: batch of the reward manager is of another size",
}
RECOVERABLE = (
    "trainer killed",
    "trainer stopped",
    "supervisor killed",
    "collective timed out",
    "head lost",
    "port taken",
    "checkpoint torn",
)
BY_SLURM = ("requeued by an admin", "preempted", "node crashed", "slurmd dead", "node cut off")
"""Faults after which Slurm itself starts the job again, so that nothing is to be decided."""

ON_THE_LAB = ("time limit", "preempted for good", "cancelled by an admin", "GPU lost")
"""What else only a cluster can do."""

FOR_A_PERSON_HERE = ("module missing", "out of GPU memory", "disk full", "nobody knows", "cancelled")
FOR_A_PERSON = (*FOR_A_PERSON_HERE, "cancelled by an admin")
