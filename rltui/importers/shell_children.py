"""Scripts that a script starts or sources, and jobs that it submits: which file, with which words.

The files are read where they lie beside the script, and followed on paper like the script itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rltui.errors import UsageError
from rltui.importers.source import one_beside, read_source
from rltui.importers.values import HOLE

_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_ENDINGS = (".sh", ".bash", ".slurm", ".sbatch", ".env")
_WRAPPERS = frozenset({"srun", "nohup", "exec", "time", "env", "sudo", "stdbuf", "mpirun", "timeout", "setsid"})
_RUNNERS = frozenset({
    *_WRAPPERS, "docker", "podman", "nvidia-docker", "apptainer", "singularity", "enroot", "uv", "conda", "mamba",
    "micromamba", "poetry", "pixi", "ray", "screen", "numactl", "taskset", "nice", "ionice", "parallel", "xargs",
    "mpiexec",
})  # fmt: skip
"""Programs that start another which stands behind their own options: containers, environments, launchers."""
_REMOTE = frozenset({"ssh", "pdsh", "clush"})
_ON_A_HOST = re.compile(r"[\s;&|]")
_SWITCHES = frozenset({
    "--exclusive", "--overlap", "--wait", "--parsable", "--hold", "--requeue", "--no-requeue", "--unbuffered",
    "--label", "--pty", "--no-container-mount-home", "--container-remap-root", "--verbose", "--quiet", "--test-only",
    "--no-kill", "--exact", "--overcommit", "--no-container-remap-root", "--container-writable", "--kill-on-bad-exit",
    "--contiguous", "--oversubscribe", "--reboot", "--spread-job", "--use-min-nodes", "--get-user-env", "--ignore-pbs",
    "--nice", "--propagate",
})  # fmt: skip
_TMUX = frozenset({"send-keys", "send", "new-session", "new", "new-window", "neww"})
_TMUX_VALUES = frozenset({"-t", "-s", "-n", "-c", "-e", "-x", "-y", "-N"})
_TEXT_FOLLOWS = frozenset({"-c", "-lc", "-ec", "-xc", "-exc"})
_TAKE_TEXT = frozenset({"script", "su", "runuser", "flock"})
_TEXT_OPTION = re.compile(r"-[a-z]*c|--command")
ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_ENTER = frozenset({"c-m", "enter", "kpenter"})
_SLURM_VALUES = frozenset("AaBbCcDdeFGiJLMmNnopqStwx")


class Child(Struct, frozen=True):
    """A script that a command starts: its file or its text, the words behind it, and options of ``sbatch``."""

    path: str
    arguments: tuple[str, ...] = ()
    batch: tuple[str, ...] | None = None
    text: str = ""


def child_of(words: Sequence[str], environ: Mapping[str, str], stdin: str = "") -> Child | None:
    """The script that a command runs, or None; its file may not be there.

    Args:
        words: The command.
        environ: What it sees; a job script that ends in ``.sub`` runs what ``COMMAND`` says (NeMo-RL's ``ray.sub``).
        stdin: What it reads; a shell or ``sbatch`` that names no file runs that.
    """
    names = [word.rsplit("/", 1)[-1] for word in words]
    if names[0] in _TAKE_TEXT:
        at = next((index for index, word in enumerate(words) if _TEXT_OPTION.fullmatch(word)), len(words))
        if at + 1 < len(words):
            return Child("", text=words[at + 1])
    for index, name in enumerate(names[:-2]):
        if name in ("bash", "sh") and words[index + 1] in _TEXT_FOLLOWS:
            return Child("", tuple(words[index + 4 :]), text=words[index + 2])
    if "sbatch" in names[:2]:
        job = _submitted(list(words[names.index("sbatch") + 1 :]), stdin)
        given = environ.get("COMMAND", "") if job is not None and job.path.endswith(".sub") else ""
        return replace(job, text=given) if job is not None and given else job
    if names[0] in _REMOTE:
        said = next((word for word in words[1:] if _ON_A_HOST.search(word)), "")
        return Child("", text=said or stdin) if said or stdin else None
    if names[0] in _SHELLS or (names[0] in _RUNNERS and _SHELLS.intersection(names)):
        return _of_shell(words, next(index for index, name in enumerate(names) if name in _SHELLS) + 1, stdin)
    if names[0] in _RUNNERS and names[0] not in _WRAPPERS:
        at = next((index for index, word in enumerate(words) if "/" in word and word.endswith(".sh")), len(words))
    else:
        at = _started(words) if names[0] in _WRAPPERS else 0
    if at < len(words) and _is_script(words[at]) and (at or "/" in words[0]):
        return Child(words[at], tuple(words[at + 1 :]))
    return None


def _of_shell(words: Sequence[str], at: int, stdin: str) -> Child | None:
    """What a shell runs whose options begin at ``at``: a file, or its input where it names none."""
    while at < len(words) and words[at].startswith("-") and "c" not in words[at]:
        at += 2 if re.fullmatch(r"-[a-z]*o", words[at]) else 1
    if at < len(words) and _is_script(words[at]):
        return Child(words[at], tuple(words[at + 1 :]))
    reads = at == len(words) or "-s" in words[:at]
    return Child("", tuple(words[at:]), text=stdin) if stdin and reads else None


def _started(words: Sequence[str]) -> int:
    """Where the program stands that ``srun``, ``nohup`` and their kin start: behind their options and variables."""
    at = 0
    while at < len(words) and (words[at].rsplit("/", 1)[-1] in _WRAPPERS or ASSIGNED.match(words[at])):
        at = len(words) - len(_options(list(words[at + 1 :]))[1])
    return at


def script_in(words: Sequence[str]) -> str | None:
    """The text that ``eval TEXT`` runs in the shell itself, or what is typed into a tmux session; else None."""
    if words[0] == "eval":
        return " ".join(words[1:])
    if words[0] == "tmux" and words[1:2] and words[1] in _TMUX:
        return " ".join(_typed(words[2:])) or None
    return None


def _typed(words: Sequence[str]) -> list[str]:
    """What tmux types or runs: its words without options, their values and the key that ends a line."""
    typed: list[str] = []
    before = ""
    for word in words:
        if not word.startswith("-") and before not in _TMUX_VALUES and word.lower() not in _ENTER:
            typed.append(word)
        before = word
    return typed


def options_of_srun(words: Sequence[str]) -> list[str]:
    """Options of ``srun`` that ask for GPUs: a training that is started by it alone says its machine there."""
    if not words or words[0].rsplit("/", 1)[-1] != "srun":
        return []
    options, _ = _options(list(words[1:]))
    asks = any(option.startswith(("--gpus", "--gres", "-G")) for option in options)
    return options if asks else []


def _is_script(word: str) -> bool:
    return word.endswith(_ENDINGS)


def _submitted(words: list[str], stdin: str) -> Child | None:
    """``sbatch [options] SCRIPT [words]``, ``sbatch [options] --wrap TEXT``, or the script in its input."""
    options, rest = _options(words)
    wrapped = next((option.partition("=")[2] for option in options if option.startswith("--wrap=")), None)
    plain = tuple(option for option in options if not option.startswith("--wrap="))
    if wrapped is not None:
        return Child("", (), plain, text=wrapped)
    if not rest and stdin:
        return Child("", (), plain, text=stdin)
    return Child(rest[0], tuple(rest[1:]), plain) if rest else None


def _options(words: list[str]) -> tuple[list[str], list[str]]:
    """Slurm's options in front of ``words`` as they stand in ``#SBATCH`` lines, and the rest."""
    options: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        at += 1
        short = len(name) == 2
        takes = not equals and (name[1] in _SLURM_VALUES if short else name not in _SWITCHES)
        if takes and (short or name.startswith("--")) and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        options.append(
            f"{name} {value}".rstrip() if not name.startswith("--") else f"{name}={value}" if value else name
        )
    return options, words[at:]


def read_beside(name: str, script: Path) -> str | None:
    """Text of the script ``name`` where it lies beside ``script``, as ``one_beside`` looks; else None.

    A machine's own files (``/etc/profile.d/modules.sh``) are not read, for they differ from machine to machine.
    """
    place = f"{HOLE}{name}" if name.startswith("/") else name
    target = one_beside(script, place) if _is_script(name) else None
    try:
        return None if target is None or target.resolve() == script.resolve() else read_source(target)
    except (OSError, ValueError, UsageError):
        return None
