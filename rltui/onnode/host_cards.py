"""The cards of a machine and who is on them, by nvidia-smi, which every machine with NVIDIA's driver has."""

import os
import shutil
import subprocess
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from rltui.onnode import processes
from rltui.onnode.host_tickets import user_name

GPU_FIELDS = "index,uuid,memory.used,memory.total,utilization.gpu,name"
PROCESS_FIELDS = "gpu_uuid,pid,used_memory"
LITTLE_MIB = 1024
"""Memory of a card that may be in use without a process of CUDA: a screen has some, and so do dying processes."""
ASK_S = 20.0


class Card(NamedTuple):
    """One card; memory in MiB, ``pids`` of the CUDA processes on it."""

    number: int
    uuid: str
    memory_used_mib: int
    memory_mib: int
    utilization: int
    name: str
    pids: Tuple[int, ...] = ()

    @property
    def in_use(self) -> str:
        """Who is on it, in words; empty: nobody."""
        if self.pids:
            return ", ".join(process_words(pid) for pid in self.pids[:3]) + " …" * (len(self.pids) > 3)
        return "%d MiB of its memory in use" % self.memory_used_mib if self.memory_used_mib > LITTLE_MIB else ""


def has_driver() -> bool:
    """Whether there is anything to ask."""
    return shutil.which("nvidia-smi") is not None


def cards(ask: "Optional[Callable[[List[str]], str]]" = None) -> List[Card]:
    """The cards as they are now.

    Args:
        ask: Gives the output of a command line; None: it is run here.

    Raises:
        OSError: There is no driver, or it does not answer.
    """
    ask = ask or _run
    gpus = ask(["nvidia-smi", "--query-gpu=" + GPU_FIELDS, "--format=csv,noheader,nounits"])
    apps = ask(["nvidia-smi", "--query-compute-apps=" + PROCESS_FIELDS, "--format=csv,noheader,nounits"])
    return read_cards(gpus, apps)


def read_cards(gpus: str, apps: str) -> List[Card]:
    """The cards in nvidia-smi's two answers; a number that a card does not tell (``[N/A]``) is 0."""
    pids: Dict[str, List[int]] = {}
    for line in apps.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 3 and words[1].isdigit():
            pids.setdefault(words[0], []).append(int(words[1]))
    found = []
    for line in gpus.splitlines():
        # the name comes last, as it may have commas
        words = [word.strip() for word in line.split(",", 5)]
        if len(words) == 6 and words[0].isdigit():
            used, total, load = (int(word) if word.isdigit() else 0 for word in words[2:5])
            found.append(Card(int(words[0]), words[1], used, total, load, words[5], tuple(pids.get(words[1], ()))))
    return found


def process_words(pid: int) -> str:
    """A process as people want to be told of it: ``bob's process 4242 (python)``."""
    user, program = owner_of(pid)
    return "%sprocess %d%s" % (user + "'s " if user else "", pid, " (%s)" % program if program else "")


def owner_of(pid: int) -> Tuple[str, str]:
    """User and program of a process; both are empty where it is in another container, hidden, or gone."""
    try:
        user = user_name(os.stat("/proc/%d" % pid).st_uid)
    except OSError:
        return "", ""
    program = os.path.basename(processes.words_of(pid)[0])
    return user, "".join(one if one.isprintable() else "?" for one in program)[:40]


def _run(argv: List[str]) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=ASK_S
        )
    except subprocess.TimeoutExpired as error:
        raise OSError("nvidia-smi does not answer within %.0f s" % ASK_S) from error
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise OSError("nvidia-smi: %s" % (said.strip().splitlines() or ["exit %d" % done.returncode])[-1][:200])
    return said
