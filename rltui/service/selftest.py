"""The self-test of a cluster: the layout that it is a run of, and what it found."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import msgspec
from msgspec import Struct

from rltui.cluster.profile import Profile
from rltui.errors import RltuiError, UsageError
from rltui.hardware.gpus import find_gpu
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.layout.scalars import CPU
from rltui.layout.schema import Layout
from rltui.layout.selftest import OFFLOADED, PARTS
from rltui.memory.layouts import estimate_roles
from rltui.onnode import rundir
from rltui.onnode.preflight import capacity
from rltui.paths import state_dir
from rltui.plan.measured import keep_measured, words
from rltui.runs.claims import if_there
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.watch.snapshots import RunSummary

PRESET = "local/grpo-tiny"
NAME = "selftest"
CPU_SLOTS = 3
LARGEST = 1 << 20


class Asked(Struct, frozen=True, kw_only=True):
    """What the user wants tried; None and empty: as the cluster has it.

    Attributes:
        nodes: How many.
        gpus: Cards of each; 0: CPU slots.
        gpu: The kind of card.
        parts: Which parts; empty: all.
        model: A model's folder on the cluster; empty: the bundled tiny one.
        thorough: Larger sizes, and three times as long.
        settings: Further ``key=value`` words, such as ``slurm.partition=debug``.
    """

    nodes: int = 1
    gpus: int | None = None
    gpu: str = ""
    parts: tuple[str, ...] = ()
    model: str = ""
    thorough: bool = False
    settings: tuple[str, ...] = ()


class Row(Struct, frozen=True, kw_only=True):
    """One thing that was tried (``trainers/selftest/found.py`` writes it)."""

    part: str
    what: str = ""
    verdict: str
    figure: str
    remedy: str = ""
    measured: dict[str, float] = {}


class Result(Struct, frozen=True, kw_only=True):
    """What a self-test found so far: its ``selftest.json``."""

    gpu: str
    nodes: int
    gpus_per_node: int
    model: str
    measured_at: float
    parts: tuple[str, ...]
    rows: tuple[Row, ...]

    def measured(self, name: str) -> float:
        """A number by its name; 0 where nothing measured it."""
        return next((row.measured[name] for row in self.rows if name in row.measured), 0.0)


def words_of(asked: Asked, profile: Profile) -> list[str]:
    """The overrides that make a self-test of the preset.

    Raises:
        UsageError: Nobody says which card it is for, or a part is not known.
    """
    known = [part.name for part in PARTS]
    if unknown := [name for name in asked.parts if name not in known]:
        raise UsageError(f"There is no part {unknown[0]!r}.", f"There are: {', '.join(known)}.")
    card, gpus = _cards(asked, profile)
    seconds = 3 if asked.thorough else 1
    words = [
        f"name={NAME}",
        f"selftest={{parts: [{', '.join(asked.parts)}], thorough: {str(asked.thorough).lower()}, "
        f"seconds: {540 * seconds}}}",
        f"slurm.time=00:{10 * seconds}:00",
        "slurm.requeue=false",
        "slurm.signal_lead_s=60",
        f"hardware={{nodes: {asked.nodes}, gpus_per_node: {gpus or CPU_SLOTS}, gpu: {card}}}",
        *_roles(asked.nodes, gpus or CPU_SLOTS),
        *(_on_cards(card) if gpus else ()),
        *_model(asked.model),
        *asked.settings,
    ]
    return [*words, *_to_fit(words)] if asked.model and gpus else words


def _cards(asked: Asked, profile: Profile) -> tuple[str, int]:
    """Which card, and how many of each node; ``cpu`` and 0: none."""
    gpus = asked.gpus
    if profile.scheduler == "local":
        gpus = capacity().gpus if gpus is None else gpus
    gpus = profile.gpus_per_node if gpus is None else gpus
    if not gpus:
        return CPU, 0
    card = asked.gpu or profile.gpu or (_card_here() if profile.scheduler == "local" else "")
    if not card:
        raise UsageError(f"Which card {profile.name} has is not known.", "Add --gpu NAME, or set gpu in its profile.")
    return card, gpus


def _card_here() -> str:
    """The name of this machine's card, as layouts have it, by the driver's; empty where it is not in the table."""
    try:
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    found = find_gpu(said.splitlines()[0].strip()) if said.strip() else None
    return found.name if found else ""


def _roles(nodes: int, slots: int) -> list[str]:
    """A learner on every node and an engine on every node; on a single card they take turns."""
    if nodes * slots == 1:
        return ["pools={shared: {gpus: [1]}}", "roles.learner.pool=shared", "roles.learner.gpus=[]",
                "roles.rollout.pool=shared", "roles.rollout.engines=1",
                "roles.rollout.sleep_while_training=true"]  # fmt: skip
    ranks = nodes if slots > 1 else 1
    engines = nodes if slots > 1 else nodes - 1
    return [f"roles.learner.gpus=[{', '.join(['1'] * ranks)}]", f"roles.rollout.engines={engines}"]


def _on_cards(card: str) -> list[str]:
    gpu = find_gpu(card)
    half = "bf16" if gpu is None or gpu.bf16 else "fp16"
    return [f"roles.learner.precision={half}", f"roles.rollout.precision={half}"]


def _model(model: str) -> list[str]:
    """A model of the user's has longer responses: with those of the tiny one its speed would say nothing.

    All rows of a step at once, as the tiny model takes them, would keep hundreds of GiB of activations.
    """
    if not model:
        return []
    return [
        f"roles.learner.model={model}",
        "lengths={prompt: 128, response: 512}",
        "train.samples_per_prompt=8",
        "roles.learner.gradient_checkpointing=true",
        "roles.learner.micro_batch=8",
    ]


def _to_fit(words: list[str]) -> list[str]:
    """What a model of the user's needs to fit: its optimizer in host memory, then less of the card for vLLM's cache."""
    knobs: list[str] = []
    for role in ("learner", "rollout"):
        layout = load_layout(resolve(PRESET), [*words, "roles.rollout.engine=vllm", *knobs]).layout
        found = estimate_roles(layout).role(role)
        if found is not None and found.verdict == "no":
            knobs += OFFLOADED if role == "learner" else filter(None, (found.knob,))
    return knobs


def layout_of(asked: Asked, profile: Profile) -> Layout:
    """The layout of the self-test, for a preview."""
    return load_layout(resolve(PRESET), words_of(asked, profile)).layout


def read_result(context: Context, run: RunSummary) -> Result | None:
    """What the newest attempt of a self-test found so far; None where it has not said anything yet.

    Raises:
        RltuiError: The file cannot be read.
    """
    path = f"{attempt_path(run)}/{rundir.SELFTEST}"
    data = if_there(lambda: context.cluster.client.read(path, 0, LARGEST).data)
    try:
        return msgspec.json.decode(data, type=Result) if data is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RltuiError(f"{path} cannot be read: {error}.") from error


def keep(context: Context, run: RunSummary, result: Result) -> str:
    """Write down what ``plan`` takes of a result; returns what that is in a line, or why there is nothing.

    Raises:
        RltuiError: What was written down before cannot be read, or the folder not be written.
    """
    gpu = find_gpu(result.gpu)
    if gpu is None:
        return "plan takes nothing of it: " + (
            "it ran without cards" if result.gpu == CPU else f"{result.gpu} has no data sheet here"
        )
    numbers = {
        "matmul": min(1.0, result.measured("matmul_flops_per_s") / gpu.peak_flops),
        "bandwidth": min(1.0, result.measured("bandwidth_bytes_per_s") / gpu.bandwidth),
        "node_bytes_per_s": result.measured("all_reduce_node_bytes_per_s"),
        "network_bytes_per_s": result.measured("all_reduce_network_bytes_per_s"),
        "host_bytes_per_s": result.measured("to_card_bytes_per_s"),
    }
    found = {name: value for name, value in numbers.items() if value}
    if not found:
        return "plan takes nothing of it: it measured neither cards nor links"
    source = f"{run.run_id} on {gpu.name} of {context.name}, {day(result.measured_at)}"
    try:
        known = keep_measured(state_dir(), context.name, gpu.name, found, source)
    except ValueError as error:
        raise RltuiError(f"What plan takes of it is not kept: {error}.", "Correct or remove the file.") from error
    return f"`rltui plan --cluster {context.name}` takes: {words(known)}"


def result_json(result: Result) -> dict[str, Any]:
    """The result with its rows, for scripts."""
    return {**msgspec.to_builtins(result), "ok": all(row.verdict != "failed" for row in result.rows)}


def day(measured_at: float) -> str:
    """The day of a measurement, ``2026-11-25``."""
    return time.strftime("%Y-%m-%d", time.localtime(measured_at))


def title(row: Row) -> str:
    """What a row is of."""
    return f"{row.part} {row.what}".rstrip()
