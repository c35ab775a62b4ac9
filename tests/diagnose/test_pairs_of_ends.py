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
        ("ray_actor_died", DONE + RAISED, DONE + DEATH),  # the one was waited for, the other is Ray going down
        ("engine_core_died", WATCHER.format("Killing"), WATCHER.format("Terminating")),
        ("kernel_compile", NINJA.format("flashinfer/jit/cpp_ext.py"), NINJA.format("setuptools/build_ext.py")),
        ("data_unfit", POOL.format("multiprocess"), POOL.format("multiprocessing")),
        ("abi_mismatch", "x.cpython-311-x86_64-linux-gnu.so: undefined symbol:\n", "undefined symbol:\n"),
        ("host_oom_slurm", "aclrtMallocHost failed, code 207001\n", "host memory: allocated 12 GiB\n"),
        ("setup_line_failed", "run.sh: 行 22: module: 未找到命令\n", "run.sh: 行 22: module: 已加载\n"),
        ("env_import_broken", "run.sh: Zeile 7: torchrun: Kommando nicht gefunden.\n", "run.sh: Zeile 7: torchrun\n"),
    ],
)
def test_what_stands_around_tells(cause: str, log: str, other: str) -> None:
    """The first log has the cause, the second does not."""
    assert [found.id for found in diagnose([text_source("log", log)])][:1] == [cause]
    assert cause not in [found.id for found in diagnose([text_source("log", other)])]
