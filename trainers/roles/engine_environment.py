"""The environment variables that the process of an engine needs from its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.layout.roles import RewardModel, Served
    from rltui.layout.schema import Rollout


def engine_environment(role: Rollout | Served | RewardModel, on_cpu: bool | None = None) -> dict[str, str]:
    """Return the environment variables that an engine's process needs from its start.

    Args:
        role: The rollout, teacher or judge role of the layout.
        on_cpu: Whether the engine's node has no GPU for it, as ``hardware.gpu: cpu`` says. None: whether this
            process sees none, which is only right where this process and the engines have the same kind of node.
    """
    if on_cpu is None:
        import torch

        on_cpu = not torch.cuda.is_available()
    variables = {"TOKENIZERS_PARALLELISM": "false"}
    if on_cpu:
        # Each slot is one CPU process; tiny models are slower with more threads, which wait for each other.
        variables["OMP_NUM_THREADS"] = "1"
    if role.engine == "vllm":
        variables |= _vllm_environment(role.tensor_parallel, on_cpu)
    return variables


def _vllm_environment(tensor_parallel: int, on_cpu: bool) -> dict[str, str]:
    variables = {
        # without it vLLM reports each start to its makers, from nodes that may have no way out
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # One worker runs inside the actor: no second process to start, and its end is the actor's end.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if tensor_parallel == 1 else "1",
    }
    if on_cpu:
        # Ray owns the cores, and vLLM's own binding would put every engine of a node on the same ones.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        # Without this the first request for log-probabilities compiles a kernel for 15 s and needs a C++ compiler.
        variables["TORCHDYNAMO_DISABLE"] = "1"
    return variables
