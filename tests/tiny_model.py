"""The tiny model of a session: the first of its processes that needs it makes it for all, in 7 CPU seconds."""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
from pathlib import Path

from forks import forked, server_of_session

ROOT = Path(__file__).parents[1]
MAKE = """
from trainers.data.models import BUILTIN_TINY, resolve_model
from rltui.layout.load import load_layout
print(resolve_model(BUILTIN_TINY, load_layout("layouts/local/grpo-tiny.yaml").layout, lambda *_: None))
"""


@functools.cache
def tiny_model() -> Path:
    """Its folder, in the cache of the session; a process of the tests waits here while another makes it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with Path(os.environ["XDG_CACHE_HOME"], "rltui/models/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = [*forked(server_of_session()), "-c", MAKE]
        return Path(subprocess.check_output(words, cwd=ROOT, env=environment, text=True).splitlines()[-1])
