"""A training script of another system as a job: what is run, where, on what, and how its output is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct, field

from rltui.dialects.schema import Dialect
from rltui.errors import ClusterError
from rltui.layout.roles import Hardware
from rltui.layout.settings import Deadlines, Slurm
from rltui.onnode import rundir
from rltui.paths import is_file
from rltui.runs.claims import if_there

if TYPE_CHECKING:
    from rltui.cluster.cluster import Attempt
    from rltui.cluster.relay_client import RelayClient
    from rltui.layout.schema import Layout

GRACE_S = 60
ENDINGS = (".sh", ".bash", ".sbatch", ".slurm", ".py")
LARGEST = 1 << 20

Work: TypeAlias = "Layout | ScriptJob"
"""What an attempt does: a layout, which the bundled trainers run, or a script of another system."""


class ScriptJob(Struct, frozen=True, kw_only=True):
    """One script with everything that a job needs, beside the place for which a layout stands otherwise.

    Attributes:
        name: What the run is called.
        dialect: How the system words what it does.
        script: The script's name in the attempt's directory.
        source: Where it was when it was launched.
        words: Arguments of the script.
        folder: The folder that it runs in, on the cluster; empty: the user's home.
        passes_words: Whether the script hands its arguments on, so that words can be appended.
        checkpoints: The folder of its checkpoints as the script says; empty: not known.
        on_each_node: Whether it is started on every node of the job; else on the first, and starts the others itself.
        starts_ray: Whether it starts a Ray cluster itself, so that it needs none of ours.
        needed_gpus: GPUs that its roles take together, as far as the script says.
        pythonpath: PYTHONPATH of who launched it, where the script runs here or by this machine's own Slurm.
        loads_modules: Whether it calls ``module``, which only a login shell has where rltui came by SSH.
    """

    name: str
    dialect: Dialect
    script: str
    source: str
    hardware: Hardware
    words: tuple[str, ...] = ()
    folder: str = ""
    passes_words: bool = False
    checkpoints: str = ""
    on_each_node: bool = False
    starts_ray: bool = False
    needed_gpus: int | None = None
    pythonpath: str = ""
    loads_modules: bool = False
    slurm: Slurm = field(default_factory=Slurm)
    deadlines: Deadlines = field(default_factory=Deadlines)

    @property
    def algorithm(self) -> str:
        """What stands in the place of the algorithm: whose script it is."""
        return self.dialect.name


def is_script(source: str) -> bool:
    """Whether ``source`` names a script and not a layout: by its ending, or its first two bytes."""
    path = Path(source)
    if path.suffix in ENDINGS:
        return True
    if not is_file(path):  # a pipe would be waited on for ever
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(2) == b"#!"
    except OSError:
        return False


def script_job(script: ScriptJob, attempt: Attempt, python: str) -> dict[str, Any]:
    """What the supervisor is to start (``job.json``)."""
    on_cpu, gpus = script.hardware.on_cpu, script.hardware.gpus_per_node
    brings_ray = script.dialect.needs_ray and script.hardware.nodes > 1 and not script.starts_ray
    return {
        "schema": rundir.SCHEMA,
        "uuid": attempt.uuid,
        "run_id": attempt.run_id,
        "attempt": attempt.number,
        "argv": [python, "-m", "rltui.onnode.script_run", "--attempt", attempt.path],
        "code": attempt.code,
        "modules": ["ray"] if brings_ray else [],
        # a system may ask for more cores than GPUs (verl: three for each), so Ray hands out all that the job has
        "ray": {"cpus": 0, "gpus": 0 if on_cpu else gpus} if brings_ray else None,
        "gpus_per_node": 0 if on_cpu else gpus,
        "resources": {"cpus": gpus if on_cpu else 1, "gpus": 0 if on_cpu else gpus},
        "deadlines_s": {"ray_up": script.deadlines.ray_s, "grace": GRACE_S},
    }


def script_files(script: ScriptJob, text: bytes) -> dict[str, bytes]:
    """The files of an attempt that say what is run: the script byte for byte, and its record."""
    record = {"schema": rundir.SCHEMA, **msgspec.to_builtins(script)}
    return {rundir.SCRIPT_RUN: msgspec.json.encode(record), script.script: text}


def read_script_job(client: RelayClient, attempt_path: str) -> ScriptJob | None:
    """The script of an attempt; None where it is one of the bundled trainers'.

    Raises:
        ClusterError: It cannot be read, or is no record of a script.
    """
    path = f"{attempt_path}/{rundir.SCRIPT_RUN}"
    data = if_there(lambda: client.read(path, 0, LARGEST).data)
    return decoded(data, path) if data is not None else None


def decoded(data: bytes | str, path: str) -> ScriptJob:
    """The record of a script that stands in ``path``.

    Raises:
        ClusterError: It is none.
    """
    try:
        return msgspec.json.decode(data, type=ScriptJob)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClusterError(f"{path} is no record of a script: {error}.") from error
