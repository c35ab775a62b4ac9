"""Verbs of rltui as processes of their own, forked from one that has imported them: a quarter of what a start costs.

How ``python -m rltui`` itself starts is held by tests/unit, test_local_cluster.py and tests in a terminal.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forks import leave_at_once, noted_code

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]
PACKAGES = ("rltui.cli", "rltui.service", "rltui.cluster", "rltui.check.rules", "rltui.diagnose", "rltui.dialects")
TIMEOUT_S = 900.0
"""It only ends what hangs: some verbs wait for the end of a run."""
WARM = threading.Lock()
"""Held while a verb runs: a warm process has one at a time. Tests of verbs at once start Python themselves."""


def rltui(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
    codes: tuple[int, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end, in ``folder``, without a terminal or input; what it leaves running stays.

    It has to exit with one of ``codes``, if there are any.
    """
    word = {"words": list(words), "folder": str(folder), "environment": dict(environment), "timeout_s": timeout_s}
    return _done(_ask((), word), words, codes)


def rltui_at_login(
    lab: Lab, words: Sequence[str], timeout_s: float = TIMEOUT_S, codes: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The same on the lab's login node as alice, in her home folder and with her bare environment.

    The warm process is root's, whose processes a reset of the lab leaves alone.
    """
    bare = dict(line.split("=", 1) for line in lab.exec("login", ["env"]).stdout.splitlines())
    word = {"words": list(words), "folder": bare["HOME"], "environment": {**bare, "PYTHONPATH": str(ROOT)}}
    answer = _ask(tuple(lab.command("login", [], "root")), {**word, "timeout_s": timeout_s, "user": "alice"})
    return _done(answer, words, codes)


def _done(answer: dict[str, Any], words: Sequence[str], codes: tuple[int, ...]) -> subprocess.CompletedProcess[str]:
    code, out, err = answer["code"], answer["out"], answer["err"]
    assert not codes or code in codes, f"rltui {' '.join(words)}: {code}\n{out}\n{err}"
    return subprocess.CompletedProcess(("rltui", *words), code, out, err)


_warm: dict[tuple[str, ...], subprocess.Popen[str]] = {}
"""By the words that lead to where they are."""


def _ask(way: tuple[str, ...], word: dict[str, Any]) -> dict[str, Any]:
    with WARM:
        if way not in _warm:
            argv = [*way, "env", f"PYTHONPATH={ROOT}:{ROOT / 'tests'}", sys.executable, __file__]
            pipe = subprocess.PIPE
            _warm[way] = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        stdin, stdout = _warm[way].stdin, _warm[way].stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(word) + "\n")
            stdin.flush()
            answer = stdout.readline()
            assert answer, "the warm rltui has ended"
        except BaseException:  # pytest's time-out too: the next one must not read what this one is still to be told
            _warm.pop(way).kill()
            raise
        return dict(json.loads(answer))


def serve() -> int:
    """Fork one verb for each line of the input, and say what it printed and its exit code; a fork returns with it."""
    leave_at_once()
    from rltui.cli.main import main

    for package in PACKAGES:
        found = importlib.import_module(package)
        for module in pkgutil.iter_modules(found.__path__, f"{package}."):
            importlib.import_module(module.name)
    gc.freeze()
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            pid = os.fork()
            if not pid:
                word = json.loads(line)
                _become(word, out.fileno(), err.fileno())
                with noted_code():
                    sys.exit(main(word["words"]))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            out.seek(0)
            err.seek(0)
            print(json.dumps({"code": code, "out": out.read(), "err": err.read()}), flush=True)
    return 0


def _become(word: dict[str, Any], out: int, err: int) -> None:
    """Have nothing in common with the process that this was forked from but what it has imported."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    if "user" in word:
        user = pwd.getpwnam(word["user"])
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    os.environ.clear()
    os.environ.update(word["environment"])
    os.chdir(word["folder"])
    sys.argv[1:] = word["words"]
    signal.setitimer(signal.ITIMER_REAL, word["timeout_s"])  # which ends it where it hangs


if __name__ == "__main__":
    sys.exit(serve())
