"""Making run directories and attempts on a cluster, through its relay."""

from __future__ import annotations

import json
import re
import secrets
import time
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from rltui.errors import ClusterError, RltuiError
from rltui.layout.load import dump_layout
from rltui.onnode import rundir
from rltui.runs.code_snapshot import take_snapshot

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient
    from rltui.layout.schema import Layout
    from rltui.runs.code_snapshot import CodeSnapshot

RAY_UP_DEADLINE_S = 120
GRACE_S = 20

UNPACK = """
cd "$1" && tar -xzf code.tar.gz && rm code.tar.gz && : >.whole || exit 1
if [ -e "$2" ]; then rm -rf "$1"; else mv "$1" "$2"; fi
"""

MODULES = ("torch", "ray", "deepspeed", "transformers", "msgspec", "yaml")


class Attempt(Struct, frozen=True, kw_only=True):
    """One submission of a run, on a cluster's disk."""

    run_id: str
    number: int
    uuid: str
    path: str
    code: str


def new_run_id(name: str) -> str:
    """A name that nobody else has: the layout's, and four hex digits."""
    return f"{name[:48]}-{secrets.token_hex(2)}"


def make_run(client: RelayClient, run_root: str, layout: Layout, cluster: str) -> str:
    """Make the directory of a new run and its ``run.json``; returns the run's id.

    Raises:
        RltuiError: The run root cannot be written.
    """
    run_id = new_run_id(layout.name)
    path = f"{run_root}/{run_id}"
    _make_folders(client, [f"{path}/{rundir.ATTEMPTS}", f"{path}/{rundir.CHECKPOINTS}", f"{path}/wandb"])
    record = {
        "schema": rundir.SCHEMA,
        "id": run_id,
        "name": layout.name,
        "layout_name": layout.name,
        "algorithm": layout.algorithm,
        "cluster": cluster,
        "created_at": time.time(),
        "nodes": layout.hardware.nodes,
        "gpus_per_node": layout.hardware.gpus_per_node,
        "gpu": layout.hardware.gpu,
        "wandb_run_id": secrets.token_hex(4),
    }
    client.put(f"{path}/{rundir.RUN}", json.dumps(record).encode())
    return run_id


def make_attempt(client: RelayClient, run_root: str, run_id: str, layout: Layout, python: str) -> Attempt:
    """Add the next attempt to a run: the layout as resolved, the code, and the supervisor's job.

    The attempt's number is taken by making its directory, so that of two rltui at once only one gets it.

    Raises:
        RltuiError: The run root cannot be written, or another rltui is making an attempt at this moment.
    """
    run_path = f"{run_root}/{run_id}"
    code = stage_code(client, run_root, take_snapshot())
    number = 1 + max(attempt_numbers(client, run_path), default=0)
    attempt = Attempt(
        run_id=run_id,
        number=number,
        uuid=uuid.uuid4().hex,
        path=rundir.attempt_folder(run_path, number),
        code=code,
    )
    made = client.run(["mkdir", "-m", "700", attempt.path], timeout_s=20)
    if made.rc:
        raise RltuiError(f"Cannot make attempt {number} of {run_id}: {_reason(made.err)}", "Is another rltui at it?")
    client.run(["ln", "-sfn", code, f"{run_path}/code"], timeout_s=20)
    client.put(f"{attempt.path}/{rundir.LAYOUT}", dump_layout(layout).encode())
    client.put(f"{attempt.path}/{rundir.JOB}", msgspec.json.encode(job(layout, attempt, python)))
    return attempt


def job(layout: Layout, attempt: Attempt, python: str) -> dict[str, Any]:
    """What the supervisor is to start (``job.json``)."""
    slots = layout.roles.learner.num_learners + layout.roles.rollout.engines * layout.roles.rollout.tensor_parallel
    on_cpu, cpus = layout.hardware.on_cpu, layout.hardware.ray_cpus_per_node
    engine = ("vllm",) if layout.roles.rollout.engine == "vllm" else ()
    return {
        "schema": rundir.SCHEMA,
        "uuid": attempt.uuid,
        "run_id": attempt.run_id,
        "attempt": attempt.number,
        "argv": [python, "-m", f"trainers.{layout.algorithm}", "--attempt", attempt.path],
        "code": attempt.code,
        "modules": [*MODULES, *engine],
        "ray": {"cpus": cpus, "gpus": 0 if on_cpu else layout.hardware.gpus_per_node},
        "resources": {"cpus": slots, "gpus": 0 if on_cpu else layout.hardware.gpus_per_node},
        "deadlines_s": {"ray_up": RAY_UP_DEADLINE_S, "grace": GRACE_S},
    }


def attempt_numbers(client: RelayClient, run_path: str) -> list[int]:
    """Numbers of the attempts that a run has."""
    names = [entry.name for entry in client.list(f"{run_path}/{rundir.ATTEMPTS}")]
    return sorted(int(name) for name in names if re.fullmatch(r"\d{2,}", name))


def stage_code(client: RelayClient, run_root: str, snapshot: CodeSnapshot) -> str:
    """Put ``snapshot`` under the run root unless it is there, and return its folder.

    Raises:
        RltuiError: It cannot be unpacked there.
    """
    folder = f"{run_root}/.code/{snapshot.digest}"
    if client.run(["test", "-e", f"{folder}/.whole"], timeout_s=20).rc == 0:
        return folder
    fresh = f"{folder}.{secrets.token_hex(4)}"
    _make_folders(client, [fresh])
    client.put(f"{fresh}/code.tar.gz", snapshot.archive)
    unpacked = client.run(["sh", "-c", UNPACK, "sh", fresh, folder], timeout_s=60)
    if unpacked.rc:
        raise RltuiError(f"Cannot unpack the code in {folder}: {_reason(unpacked.err)}")
    return folder


def _make_folders(client: RelayClient, paths: list[str]) -> None:
    made = client.run(["mkdir", "-p", "-m", "700", *paths], timeout_s=20)
    if made.rc:
        raise RltuiError(
            f"Cannot make {paths[0]}: {_reason(made.err)}", "Set RLTUI_RUN_ROOT to a directory you can write to."
        )


def _reason(text: str) -> str:
    """The cause out of ``mkdir: cannot create directory '…': Permission denied``."""
    return text.strip().splitlines()[-1].rsplit(": ", 1)[-1] if text.strip() else "no reason was given"


def read_layout(client: RelayClient, attempt_path: str) -> str:
    """The text of an attempt's layout.

    Raises:
        ClusterError: It cannot be read.
    """
    chunk = client.read(f"{attempt_path}/{rundir.LAYOUT}", 0, 1 << 20)
    try:
        return chunk.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ClusterError(f"{attempt_path}/{rundir.LAYOUT} is not text.") from error
