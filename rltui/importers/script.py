"""A launch script as the dialects see it: the commands it starts, the training among them, Slurm and Ray."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.importers.arguments import from_flags
from rltui.importers.shell_children import options_of_srun, read_beside
from rltui.importers.shell_run import Reading, Started, read_shell
from rltui.importers.slurm_lines import SlurmJob, read_slurm
from rltui.importers.values import HOLE, is_known, product, to_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_GPU_LINES = re.compile(r"#SBATCH.*(?:gpu|gres|nodes|-N|-n|-G).*")
SERVERS = ("sglang.launch_server", "vllm.entrypoints.openai.api_server", "serve", "vllm-serve")


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
        """The commands it starts."""
        return self.reading.commands

    def after(self, is_entry: Callable[[str], bool]) -> list[tuple[Started, list[str]]]:
        """Commands that start a training, with the words behind the entry point."""
        found = []
        for command in self.commands:
            for index, word in enumerate(command.words):
                if is_entry(word):
                    found.append((command, list(command.words[index + 1 :])))
                    break
        return found


def read_script(text: str, path: Path) -> Script:
    """Read a shell script without running it.

    Raises:
        ScriptError: Not a script that can be read.
    """
    slurm = read_slurm(text)
    reading = read_shell(text, slurm.environ, lambda name: read_beside(name, path))
    if not slurm.present:
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

    model: str
    gpus: int | None
    tensor_parallel: int | None
    data_parallel: int | None
    line: int


def servers(script: Script) -> list[Server]:
    """The inference servers that a script starts, each with its GPUs."""
    return [server for command in script.commands if (server := _server(command))]


def _server(command: Started) -> Server | None:
    words = list(command.words)
    entry = next((index for index, word in enumerate(words) if word in SERVERS), None)
    if entry is None or (words[entry] == "serve" and not _is_vllm(words[:entry])):
        return None
    flags = from_flags(words[entry + 1 :])
    tensor = flags.integer("tp", "tp_size", "tensor_parallel_size", default=1)
    data = flags.integer("dp", "dp_size", "data_parallel_size", default=1)
    positional = words[entry + 1] if entry + 1 < len(words) and not words[entry + 1].startswith("-") else ""
    model = flags.text("model_path", "model") or (positional if is_known(positional) else "")
    gpus = product(tensor, data)
    visible = visible_gpus(command)
    return Server(model, gpus if visible is None else visible, tensor, data, command.line)


def _is_vllm(words: Iterable[str]) -> bool:
    return any(word.rsplit("/", 1)[-1] == "vllm" for word in words)


def visible_gpus(command: Started) -> int | None:
    """GPUs that ``CUDA_VISIBLE_DEVICES`` in front of a command leaves it; None where it is not there or not known."""
    devices = command.environ.get("CUDA_VISIBLE_DEVICES", "")
    for word in command.words[:4]:
        if word.startswith("CUDA_VISIBLE_DEVICES="):
            devices = word.partition("=")[2]
    parts = [part for part in devices.split(",") if part.strip()]
    if not parts or HOLE in devices or any(to_int(part) is None for part in parts):
        return None
    return len(parts)
