"""A launch script as the dialects see it: the commands it starts, the training among them, Slurm and Ray."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rltui.importers.arguments import from_flags
from rltui.importers.shell_children import options_of_srun, read_beside
from rltui.importers.shell_run import Reading, Started, read_shell
from rltui.importers.slurm_lines import SlurmJob, read_slurm
from rltui.importers.values import HOLE, is_known, product, to_int

_GPU_LINES = re.compile(r"#SBATCH.*(?:gpu|gres|nodes|-N|-n|-G).*")
_HEADER = re.compile(r"(?:[ \t]*(?:#.*)?\r?\n)*(?:[ \t]*#.*)?")
TRL_SERVERS = ("vllm-serve", "trl.scripts.vllm_serve")
TRL_COPIES = frozenset({"vllm_serve.py", "vllm_server.py"})
SERVERS = (*TRL_SERVERS, "sglang.launch_server", "vllm.entrypoints.openai.api_server", "serve", "rollout")
_OWNERS = {"serve": "vllm", "rollout": "swift"}
_BEFORE_VARIABLES = frozenset({"env", "nohup", "exec", "setsid", "time", "srun", "sudo"})
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?<!\.yaml)(?<!\.yml)(?<!\.json)(?<!\.toml)")
_STRAY = re.compile(r"(?:--(?=[a-z])|\+{0,2}(?=[a-z_]\w*\.))([a-z][\w.-]*)(?:=|\Z)")
_LAUNCHERS = {
    "torchrun": "torchrun", "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate": "accelerate", "accelerate.commands.launch": "accelerate", "deepspeed": "deepspeed",
}  # fmt: skip
_ENVIRONMENT = "--runtime-env-json"
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")


class Script(Struct, frozen=True):
    """A shell script that was read.

    Attributes:
        path: The file, for other files it names.
        reading: Its commands and variables.
        slurm: Its ``#SBATCH`` lines.
    """

    path: Path
    reading: Reading
    slurm: SlurmJob

    @property
    def commands(self) -> tuple[Started, ...]:
        """The commands that the script starts, with all variables filled in as far as they are known."""
        return self.reading.commands

    def until(self, end: int) -> Script:
        """The script with its first ``end`` commands only."""
        return replace(self, reading=replace(self.reading, commands=self.commands[:end]))

    def job(self, number: int, beside: Sequence[int] | None = None) -> Script:
        """What a job does that the script submits, 0: the script itself.

        With ``beside`` all is kept, such as servers in a job of their own, but for these jobs.
        """
        commands = tuple(
            command
            for command in self.commands
            if (command.job == number if beside is None else command.job not in beside)
        )
        slurm = read_slurm(self.reading.jobs[number - 1]) if number else self.slurm
        return replace(self, reading=replace(self.reading, commands=commands), slurm=slurm)

    def after(self, is_entry: Callable[[str], bool]) -> list[tuple[Started, list[str]]]:
        """Commands that start a training, with the words behind the entry point."""
        found = []
        for command in self.commands:
            for index, word in enumerate(command.words):
                if is_entry(word):
                    found.append((command, list(command.words[index + 1 :])))
                    break
        return found


def strays(script: Script) -> tuple[tuple[int, str], ...]:
    """Line and name of options that stand as commands of their own, for the line above does not go on."""
    found = ((command.line, match.group(1)) for command in script.commands if (match := _STRAY.match(command.words[0])))
    return tuple(dict.fromkeys(found))


def launched(script: Script) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Options of sbatch, and of each launcher in front of the program that it starts, under their long names."""
    found = [("sbatch", tuple(name for name in script.slurm.options if len(name) > 1))]
    for command in script.commands:
        words = list(command.words)
        names = [word.rsplit("/", 1)[-1] for word in words]
        at = next((at for at, name in enumerate(names) if name in _LAUNCHERS), len(words))
        end = next((end for end in range(at + 1, len(words)) if begins_program(words, end)), at)
        options = [word[2:].partition("=")[0] for word in words[at + 1 : end] if word.startswith("--") and word[2:]]
        if at < len(words):
            found.append((_LAUNCHERS[names[at]], tuple(name for name in options if is_known(name))))
    return tuple(dict.fromkeys((program, names) for program, names in found if names))


def begins_program(words: Sequence[str], at: int) -> bool:
    """Whether what a launcher starts stands here: a file of Python, or the name of a module.

    ``-m`` is a switch of accelerate and torchrun, so that other options may stand between it and the name.
    """
    switches = [index for index, word in enumerate(words[:at]) if word in ("-m", "--module")]
    named = bool(switches) and (
        (switches[0] == at - 1 and not words[at].startswith("-")) or bool(_MODULE.fullmatch(words[at]))
    )
    return words[at].endswith(".py") or named


def bad_environments(script: Script) -> tuple[tuple[int, str], ...]:
    """Line and fault of environments for Ray's workers that are no JSON; one with an unknown part is left out."""
    found = []
    for command in script.commands:
        words = list(command.words)
        for index, word in enumerate(words):
            name, equals, text = word.partition("=")
            if name != _ENVIRONMENT:
                continue
            text = text if equals else "".join(words[index + 1 : index + 2])
            if HOLE not in _QUOTED.sub("", text) and (fault := _no_json(text.replace(HOLE, "?"))):
                found.append((command.line, fault))
    return tuple(dict.fromkeys(found))


def _no_json(text: str) -> str:
    """What is wrong with a text that is to be JSON; empty where nothing is."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        at = getattr(error, "pos", 0)
        near = " ".join(text[max(0, at - 30) : at + 15].split())
        return f"{getattr(error, 'msg', 'too deep')}, near {near!r}"
    return ""


def read_script(text: str, path: Path, environ: Mapping[str, str] | None = None) -> Script:
    """Read a shell script without running it; ``environ`` are variables that it would find set.

    Raises:
        ScriptError: Not a script that can be read.
    """
    slurm = read_slurm(text)
    reading = read_shell(text, {**slurm.environ, **(environ or {})}, lambda name: read_beside(name, path))
    header = _HEADER.match(text)
    own = read_slurm(header[0] if header else "")  # lines further down may be those of a script that it submits
    if not slurm.present or (reading.jobs and not own.present):
        slurm = _submitted(reading)
    return Script(path, reading, slurm)


def _submitted(reading: Reading) -> SlurmJob:
    """What the jobs ask for that a script submits by ``sbatch``, or that it runs by ``srun``, where they agree."""
    texts = list(reading.jobs) or [
        "\n".join(f"#SBATCH {option}" for option in batch)
        for command in reading.commands
        if (batch := options_of_srun(command.words))
    ]
    if not texts:
        return SlurmJob()
    jobs = [read_slurm(text) for text in texts if HOLE not in "".join(_GPU_LINES.findall(text))]
    agreed = len(texts) == len(jobs) and len({(job.nodes, job.gpus_per_node) for job in jobs}) == 1
    return jobs[0] if agreed else SlurmJob(present=True)


def ray_gpus(script: Script) -> tuple[bool, int | None]:
    """Whether the script starts Ray with a number of GPUs a node, and that number where all starts agree."""
    numbers: set[int | None] = set()
    for command in script.commands:
        words = list(command.words)
        if "ray" in (word.rsplit("/", 1)[-1] for word in words) and "start" in words:
            flags = from_flags(words[words.index("start") + 1 :])
            if flags.has("num_gpus"):
                numbers.add(flags.integer("num_gpus"))
    return bool(numbers), numbers.pop() if len(numbers) == 1 else None


class Server(Struct, frozen=True):
    """An inference server that the script starts by itself, outside Ray."""

    program: str
    model: str
    gpus: int | None
    tensor_parallel: int | None
    devices: frozenset[str] | None
    sure: bool


def servers(script: Script) -> list[Server]:
    """The inference servers that a script starts, each with its GPUs."""
    return [server for command in script.commands if (server := _server(command))]


def _server(command: Started) -> Server | None:
    words = [_program(word) for word in command.words]
    entry = next((index for index, word in enumerate(words) if word in SERVERS and _owned(words, index)), None)
    if entry is None:
        return None
    flags = from_flags(words[entry + 1 :])
    tensor = flags.integer("tp", "tp_size", "tensor_parallel_size", "vllm_tensor_parallel_size", default=1)
    pipeline = flags.integer("pp", "pp_size", "pipeline_parallel_size", "vllm_pipeline_parallel_size", default=1)
    data = flags.integer("dp", "dp_size", "data_parallel_size", "vllm_data_parallel_size", default=1)
    # SGLang's attention in parallel over data cuts the tensor-parallel group; it takes no further GPUs
    copies = 1 if flags.flag("enable_dp_attention") else data
    positional = words[entry + 1] if entry + 1 < len(words) and not words[entry + 1].startswith("-") else ""
    model = flags.text("model_path", "model") or (positional if is_known(positional) else "")
    gpus = None if flags.is_open else product(tensor, pipeline, copies)
    return Server(words[entry], model, gpus, tensor, visible_devices(command), command.sure)


def _program(word: str) -> str:
    """The server that a word of a command starts: a copy of TRL's (``src/vllm_serve.py``) counts as TRL's own."""
    return TRL_SERVERS[0] if word.rsplit("/", 1)[-1] in TRL_COPIES else word


def _owned(words: Sequence[str], index: int) -> bool:
    """Whether a subcommand such as ``serve`` belongs to the program that has it."""
    owner = _OWNERS.get(words[index])
    return owner is None or any(word.rsplit("/", 1)[-1] == owner for word in words[:index])


def variable_of(command: Started, name: str) -> str | None:
    """A variable of the environment that a command sees; None where the script does not set it."""
    value = command.environ.get(name)
    for word in command.words:
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if not _ASSIGNED.match(word) and word.rsplit("/", 1)[-1] not in _BEFORE_VARIABLES:
            break
    return value


def visible_devices(command: Started) -> frozenset[str] | None:
    """GPUs that ``CUDA_VISIBLE_DEVICES`` leaves a command; None where it is not set or not known."""
    devices = variable_of(command, "CUDA_VISIBLE_DEVICES") or ""
    parts = [part.strip() for part in devices.split(",") if part.strip()]
    if not parts or HOLE in devices or any(to_int(part) is None for part in parts):
        return None
    return frozenset(parts)


def visible_gpus(command: Started) -> int | None:
    """How many GPUs ``CUDA_VISIBLE_DEVICES`` leaves a command; None where it is not set or not known."""
    devices = visible_devices(command)
    return None if devices is None else len(devices)


def included_gpus(words: str) -> int | None:
    """GPUs of DeepSpeed's ``--include host:0,1@other:0``; None where slots are not named."""
    hosts = [host.partition(":")[2] for host in words.split("@")]
    return sum(len(slots.split(",")) for slots in hosts) if all(hosts) else None


def named_gpus(taken: int | None, devices: Iterable[frozenset[str] | None]) -> int | None:
    """GPUs of a script's only node: what its programs take, and more where their visible devices name more.

    None where not all of what they take is known, for a server that runs elsewhere may have others.
    """
    named = {device for group in devices for device in group or ()}
    return None if taken is None else max(taken, len(named))
