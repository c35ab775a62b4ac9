"""Pairs of ends that differ in what stands around the telling words: only the first ones have the cause."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import text_source

WAIT = "INFO - trl.extras.vllm_client - Server is not up yet. Retrying in 2.0 seconds...\n"
DONE = "Training finished after 100 steps.\n"
DEATH = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
RAISED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
WATCHER = "INFO 03-02 10:11:12 multiproc_worker_utils.py:128] {} local vLLM worker processes\n"
NINJA = (
    "Traceback (most recent call last):\n"
    '  File "/env/lib/python3.12/site-packages/{}", line 299, in run_ninja\n'
    "    subprocess.run(command)\n"
    "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n"
)
POOL = "  File \"/env/site-packages/{}/pool.py\", line 774, in get\n    raise self._value\nKeyError: 'prompt'\n"


@pytest.mark.parametrize(
    ("cause", "log", "other"),
    [
        ("engine_unreachable", 4 * WAIT, 4 * WAIT + "INFO - trl.extras.vllm_client - Server is up!\n"),
        ("engine_unreachable", 4 * WAIT, WAIT),
        (
            "engine_unreachable",
            "ConnectionError: HTTPConnectionPool(port=8000): Max retries exceeded with url: /health (refused)\n",
            "Server not ready: HTTPConnectionPool(port=8000): Max retries exceeded with url: /health (refused)\n",
        ),
        ("ray_actor_died", DONE + RAISED, DONE + DEATH),  # the one was waited for, the other is Ray going down
        ("engine_core_died", WATCHER.format("Killing"), WATCHER.format("Terminating")),
        ("kernel_compile", NINJA.format("flashinfer/jit/cpp_ext.py"), NINJA.format("setuptools/build_ext.py")),
        ("data_unfit", POOL.format("multiprocess"), POOL.format("multiprocessing")),
        ("abi_mismatch", "x.cpython-311-x86_64-linux-gnu.so: undefined symbol:\n", "undefined symbol:\n"),
        (
            "nccl_ib_error",
            "(Actor pid=9) mlx5: host_unknown: got completion with error:\n",
            "got completion with error: none\n",
        ),
        ("nccl_ib_error", "ibv_modify_qp failed with 110 Connection timed out\n", "ibv_modify_qp took 110 us\n"),
        (
            "ckpt_broken",
            "Unable to load optimizer from checkpoint iter_9/model.pt, exiting. Specify --finetune.\n",
            "Unable to load optimizer from checkpoint iter_9/model.pt, starting with a new one.\n",
        ),
        (
            "no_gpu_visible",
            'RuntimeError: INTERNAL ASSERT FAILED at "../aten/src/ATen/cuda/CUDAContext.cpp":49\n',
            'RuntimeError: INTERNAL ASSERT FAILED at "../aten/src/ATen/native/Sum.cpp":49\n',
        ),
        (
            "data_unfit",
            'Traceback (most recent call last):\n  File "/w/join.py", line 9, in join\n    raise ValueError(text)\n'
            "ValueError: Input rows and results do not have matching keys\n",
            'Traceback (most recent call last):\n  File "/w/join.py", line 9, in join\n    raise ValueError(text)\n'
            "ValueError: Results do not have matching keys\n",
        ),
        ("host_oom_slurm", "aclrtMallocHost failed, code 207001\n", "host memory: allocated 12 GiB\n"),
        ("setup_line_failed", "run.sh: 行 22: module: 未找到命令\n", "run.sh: 行 22: module: 已加载\n"),
        ("env_import_broken", "run.sh: Zeile 7: torchrun: Kommando nicht gefunden.\n", "run.sh: Zeile 7: torchrun\n"),
    ],
)
def test_what_stands_around_tells(cause: str, log: str, other: str) -> None:
    """The first log has the cause, the second does not."""
    assert [found.id for found in diagnose([text_source("log", log)])][:1] == [cause]
    assert cause not in [found.id for found in diagnose([text_source("log", other)])]
