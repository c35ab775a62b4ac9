"""Making run directories and attempts on a cluster, through its relay."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rltui.cluster.cluster import Attempt
from rltui.errors import ClusterError, RltuiError
from rltui.onnode import rundir

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient
    from rltui.layout.load import LoadedLayout
    from rltui.layout.roles import Hardware
    from rltui.layout.schema import Layout
    from rltui.runs.code_snapshot import CodeSnapshot
    from rltui.runs.script_job import Work

Made = TypeVar("Made")

GRACE_S = 20

UNPACK = """
cd "$1" && tar -xzf code.tar.gz && rm code.tar.gz && : >.whole || { rm -rf "$1"; exit 1; }
if [ -e "$2/.whole" ]; then rm -rf "$1"; exit; fi
[ ! -e "$2" ] || mv "$2" "$1.old"
mv "$1" "$2"; rm -rf "$1.old"
"""
"""Sites purge scratch disks of files that nobody has read for weeks: code that has lost some is replaced."""

SHARE = """
group=$1; shift
[ ! -O "$1" ] || { chgrp -- "$group" "$1" && chmod g+rxs "$1"; } || exit 1
shift; chgrp -- "$group" "$@" && chmod 2750 "$@"
"""
"""Opens folders to a group; the first one, which they are in, only as far as it is the user's to open."""

CLAIMED_BY_ANOTHER = 17
CLAIM = """
mine=${1##*/}
[ ! -e "$2" ] && mv "$1" "$2" && [ ! -e "$2/$mine" ] && exit 0
[ -e "$2" ] || exit 1
rm -rf "$1" "$2/$mine"
exit 17
"""
"""Names a finished directory: ``mv`` puts it *into* one that got the name first, or fails where both came at once."""

MODULES = ("torch", "ray", "deepspeed", "transformers", "msgspec", "yaml")


class ClaimedError(RltuiError):
    """Somebody else has made this very attempt: of two at once only one gets it."""


def new_run_id(name: str) -> str:
    """A name that nobody else has: the layout's, and four hex digits."""
    return f"{name[:48]}-{secrets.token_hex(2)}"


def with_new_id(name: str, make: Callable[[str], Made]) -> Made:
    """What ``make`` gives for a new run id; an id that a run has already is drawn anew.

    Of fifty runs with one name two draw the same four digits once in fifty times.

    Raises:
        ClaimedError: Five ids were taken.
    """
    for _ in range(4):
        with contextlib.suppress(ClaimedError):
            return make(new_run_id(name))
    return make(new_run_id(name))


def plan_attempt(run_root: str, run_id: str, number: int, code: str) -> Attempt:
    """An attempt with a fresh mark; nothing of it is on a disk yet."""
    path = rundir.attempt_folder(f"{run_root}/{run_id}", number)
    return Attempt(run_id=run_id, number=number, uuid=uuid.uuid4().hex, path=path, code=code)


def make_run(client: RelayClient, run_root: str, run_id: str, group: str = "") -> None:
    """Make the folders of a new run. It is listed from ``write_run`` on.

    Args:
        client: The relay of the cluster.
        run_root: Folder of the runs.
        run_id: The run.
        group: Who else may read it; empty: nobody.

    Raises:
        RltuiError: The run root cannot be written.
    """
    path = f"{run_root}/{run_id}"
    # each by name: mkdir gives those in between what the user's umask leaves
    folders = [path, f"{path}/{rundir.ATTEMPTS}", f"{path}/{rundir.CHECKPOINTS}", f"{path}/wandb"]
    _make_folders(client, [run_root, *folders])
    _share(client, group, run_root, folders)


def write_run(client: RelayClient, run_root: str, run_id: str, layout: Work, cluster: str, sweep: str = "") -> None:
    """Write the run's ``run.json``: what it is, for ever.

    Args:
        client: The relay of the cluster.
        run_root: Folder of the runs.
        run_id: The run.
        layout: What it does.
        cluster: The profile that it was launched with.
        sweep: What all runs of its sweep have in common; empty: it is of none.

    Raises:
        RltuiError: The run root cannot be written.
    """
    record = {
        "schema": rundir.SCHEMA,
        "id": run_id,
        "name": layout.name,
        "layout_name": layout.name,
        "algorithm": layout.algorithm,
        "cluster": cluster,
        "created_at": time.time(),
        **held(layout.hardware),
        "wandb_run_id": secrets.token_hex(4),
        **({"sweep": sweep} if sweep else {}),
    }
    client.put(f"{run_root}/{run_id}/{rundir.RUN}", json.dumps(record).encode())


def held(hardware: Hardware) -> dict[str, Any]:
    """Nodes that an attempt asks for, GPUs of each (where they differ the mean, and each kind of node), cards."""
    return {
        "nodes": hardware.all_nodes,
        "gpus_per_node": hardware.mean_gpus_per_node,
        "gpu": ", ".join(dict.fromkeys(part.gpu for part in hardware.parts)),
        **({"kinds": hardware.unlike_kinds} if hardware.unlike_kinds else {}),
    }


def make_attempt(client: RelayClient, attempt: Attempt, files: Mapping[str, bytes], group: str = "") -> None:
    """Make the attempt's directory with its ``files``, whole or not at all; ``group`` may read it.

    The number is claimed by giving a finished directory its name, so that of two rltui at once only one gets it, and
    one that is killed in between leaves no half attempt in the way.

    Raises:
        ClaimedError: Another rltui has made this attempt.
        RltuiError: The run root cannot be written.
    """
    fresh = draft_folder(attempt.path, attempt.uuid)
    _make_folders(client, [fresh])
    _share(client, group, fresh.rpartition("/")[0], [fresh])
    for name, data in files.items():
        client.put(f"{fresh}/{name}", data)
    claimed = client.run(["sh", "-c", CLAIM, "sh", fresh, attempt.path], timeout_s=20)
    if claimed.rc == CLAIMED_BY_ANOTHER:
        raise ClaimedError(
            f"Attempt {attempt.number} of {attempt.run_id} was made by another rltui a moment ago.",
            f"`rltui show {attempt.run_id}` shows it.",
        )
    if claimed.rc:
        raise RltuiError(f"Cannot make attempt {attempt.number} of {attempt.run_id}: {_reason(claimed.err)}.")
    # -n: a link that is there leads to a folder, and ln would put the new one into that
    client.run(["ln", "-sfn", attempt.code, f"{attempt.path}/../../code"], timeout_s=20)


def draft_folder(attempt_path: str, uuid: str) -> str:
    """Where the files of an attempt are before it has its number."""
    return f"{attempt_path.rpartition('/')[0]}/.new-{uuid}"


def optional_modules(layout: Layout) -> tuple[str, ...]:
    """What a node must be able to import for this layout, beyond what all trainers need."""
    from rltui.layout.roles import has_8_bit_moments

    learner = layout.roles.learner
    wanted = {
        "vllm": layout.roles.rollout.engine == "vllm",
        "peft": learner.lora_rank > 0,
        "bitsandbytes": has_8_bit_moments(learner),
    }
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def job(layout: Layout, attempt: Attempt, python: str) -> dict[str, Any]:
    """What the supervisor is to start (``job.json``)."""
    parts = [ray_share(part) for part in layout.hardware.parts]
    slots = layout.roles.learner.num_learners + layout.roles.rollout.engines * layout.roles.rollout.tensor_parallel
    program = layout.algorithm if layout.selftest is None else "selftest"
    return {
        "schema": rundir.SCHEMA,
        "uuid": attempt.uuid,
        "run_id": attempt.run_id,
        "attempt": attempt.number,
        "argv": [python, "-m", f"trainers.{program}", "--attempt", attempt.path],
        "code": attempt.code,
        "modules": [*MODULES, *optional_modules(layout)],
        "ray": parts[0],
        **({"parts": parts} if len(parts) > 1 else {}),
        "resources": {"cpus": slots, "gpus": parts[0]["gpus"]},
        "deadlines_s": {"ray_up": layout.deadlines.ray_s, "grace": GRACE_S},
    }


def ray_share(hardware: Hardware) -> dict[str, int]:
    """What Ray is told that each node of one kind has."""
    return {"cpus": hardware.ray_cpus_per_node, "gpus": 0 if hardware.on_cpu else hardware.gpus_per_node}


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
    _make_folders(client, [run_root, fresh])  # the first launch makes the run root with it
    client.put(f"{fresh}/code.tar.gz", snapshot.archive())
    unpacked = client.run(["sh", "-c", UNPACK, "sh", fresh, folder], timeout_s=60)
    if unpacked.rc:
        raise RltuiError(
            f"Cannot unpack the code in {folder}: {_reason(unpacked.err)}.",
            "It takes a few MiB below run_root of the cluster's profile.",
        )
    return folder


def _make_folders(client: RelayClient, paths: list[str]) -> None:
    made = client.run(["mkdir", "-p", "-m", "700", *paths], timeout_s=20)
    if made.rc:
        raise RltuiError(
            f"Cannot make {paths[0]}: {_reason(made.err)}",
            "Set run_root: of the cluster's profile (on this machine RLTUI_RUN_ROOT) to a directory you can write to.",
        )


def _share(client: RelayClient, group: str, inside: str, folders: list[str]) -> None:
    if not group:
        return
    done = client.run(["sh", "-c", SHARE, "sh", group, inside, *folders], timeout_s=20)
    if done.rc:
        raise RltuiError(
            f"{folders[0]} cannot be given to group {group}: {_reason(done.err)}.",
            "run_root_group: of the cluster's profile must be a group that you are in; `id -Gn` there lists them.",
        )


def _reason(text: str) -> str:
    """The cause out of ``mkdir: cannot create directory '…': Permission denied``; tar's last line only sums up."""
    said = [line for line in text.strip().splitlines() if not line.endswith("due to previous errors")]
    if not said:
        return "no reason was given"
    reason = said[-1].rsplit(": ", 1)[-1]
    return reason if reason[0] not in "'‘`" else said[-1].partition(": ")[2]  # chgrp: invalid group: ‘…’


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


def load_attempt_layout(client: RelayClient, attempt_path: str) -> LoadedLayout:
    """An attempt's layout.

    Raises:
        ClusterError: It cannot be read.
        LayoutError: It is no layout that this version knows.
    """
    from rltui.layout.load import load_text

    return load_text(read_layout(client, attempt_path), f"{attempt_path}/{rundir.LAYOUT}")


def read_origins(client: RelayClient, attempt_path: str) -> dict[str, str]:
    """Where each setting of an attempt's layout comes from; empty where that was not written down.

    Raises:
        ClusterError: It cannot be reached.
    """
    for file in client.collect(attempt_path, [rundir.ORIGINS]):
        with contextlib.suppress(ValueError):
            told = json.loads(file.text or "{}")
            keys = told.get("keys") if isinstance(told, dict) else None
            return {str(key): str(origin) for key, origin in keys.items()} if isinstance(keys, dict) else {}
    return {}
