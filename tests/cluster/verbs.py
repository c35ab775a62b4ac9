"""Verbs of rltui as processes of their own, forked from one that has imported them: a quarter of what a start costs.

How ``python -m rltui`` itself starts is held by tests/unit, test_local_cluster.py and tests in a terminal.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("rltui.cli", "rltui.service", "rltui.cluster", "rltui.check.rules", "rltui.diagnose", "rltui.dialects")
WARM = threading.Lock()
"""Held while a verb runs: the warm process has one at a time. Tests of verbs at once start Python themselves."""


def rltui(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float = 240.0,
    codes: tuple[int, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end, in ``folder``, without a terminal or input; what it leaves running stays.

    It has to exit with one of ``codes``, if there are any.
    """
    with WARM, tempfile.TemporaryDirectory() as kept:
        out, err = Path(kept, "out"), Path(kept, "err")
        where = {"folder": str(folder), "out": str(out), "err": str(err)}
        try:
            pid = int(_ask(words=list(words), environment=dict(environment), **where))
            late = threading.Timer(timeout_s, _end, [pid])
            late.daemon = True
            late.start()
            code = int(_answer())
            late.cancel()
        except BaseException:  # pytest's time-out too: the next one must not read what this one is still to be told
            _warm.pop().kill()
            raise
        said = out.read_text(), err.read_text()
    assert not codes or code in codes, f"rltui {' '.join(words)}: {code}\n{said[0]}\n{said[1]}"
    return subprocess.CompletedProcess(("rltui", *words), code, *said)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


_warm: list[subprocess.Popen[str]] = []


def _ask(**word: Any) -> str:
    if not _warm:
        words = ["env", f"PYTHONPATH={ROOT}", sys.executable, __file__]
        _warm.append(
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        )
    stdin = _warm[0].stdin
    assert stdin is not None
    stdin.write(json.dumps(word) + "\n")
    stdin.flush()
    return _answer()


def _answer() -> str:
    stdout = _warm[0].stdout
    assert stdout is not None
    answer = stdout.readline()
    assert answer, "the warm rltui has ended"
    return answer


def serve() -> int:
    """Fork one verb for each line of the input, and say its pid and exit code; a fork returns with its code."""
    from rltui.cli.main import main

    for package in PACKAGES:
        found = importlib.import_module(package)
        for module in pkgutil.iter_modules(found.__path__, f"{package}."):
            importlib.import_module(module.name)
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            word = json.loads(line)
            _become(word)
            return main(word["words"])
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return 0


def _become(word: dict[str, Any]) -> None:
    """Have nothing in common with the process that this was forked from but what it has imported."""
    os.setsid()
    os.environ.clear()
    os.environ.update(word["environment"])
    os.chdir(word["folder"])
    sys.argv[1:] = word["words"]
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, word["out"], os.O_WRONLY),
        (2, word["err"], os.O_WRONLY),
    ):
        opened = os.open(path, flags | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)


if __name__ == "__main__":
    sys.exit(serve())
