"""Our simulation against Ray's own scheduler: the same groups, asked of a real cluster of several nodes on loopback."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ray_oracle import CPUS, GPUS, NODES, Answer, neighbours, shape

from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.placement.bundles import Group, groups, ray_resources
from rltui.placement.scheduler import Nodes, schedule
from rltui.placement.simulate import place_bundles

ORACLE = Path(__file__).with_name("ray_oracle.py")

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]


@dataclass(frozen=True)
class Machine:
    """Nodes as a layout describes them, and what Ray is told of each."""

    words: tuple[str, ...]
    gpus: int
    cpus: int
    num_layouts: int
    num_groups: int = 0
    on_cpu: bool = False


MACHINES = {
    "GPUs": Machine(("hardware.gpu=H100-SXM-80GB",), GPUS, CPUS, 160, 60),
    "a server outside Ray": Machine(("hardware.gpu=H100-SXM-80GB", "hardware.gpus_outside_ray=1"), GPUS - 1, CPUS, 40),
    "CPU slots": Machine(("hardware.gpu=cpu",), 0, GPUS, 40, on_cpu=True),
}


def simulated(wanted: Sequence[Group], machine: Machine) -> tuple[Answer, list[dict[str, Any]]]:
    """Our answer in Ray's form, and the question for Ray: it waits patiently where we say that a group fits."""
    nodes = Nodes(machine.on_cpu)
    nodes.fill(range(NODES), (machine.gpus or machine.cpus, machine.cpus))
    answers: Answer = []
    question = []
    for group in wanted:
        homes = schedule(nodes, group.slots, group.strategy)
        fits = len(homes) == len(group.slots)
        if None not in answers:
            answers.append(shape(homes, list(group.slots)) if fits else None)
        bundles = [ray_resources(slots, on_cpu=machine.on_cpu) for slots in group.slots]
        question.append({"strategy": group.strategy, "slots": group.slots, "bundles": bundles, "patient": fits})
    return answers, question


def random_layout(random_: random.Random, machine: Machine) -> tuple[Group, ...]:
    """Groups of a layout with learners or pools, engines of some width, and perhaps a teacher."""
    words = [f"hardware.nodes={NODES}", f"hardware.gpus_per_node={GPUS}", *machine.words]
    width = machine.gpus or machine.cpus
    words.append(f"roles.rollout.tensor_parallel={random_.choice([1, 1, 2, 3, 4])}")
    words.append(f"roles.rollout.engines={random_.randint(1, 2 * width)}")
    entries = [random_.randint(1, width) for _ in range(random_.randint(1, 5))]
    if random_.random() < 0.3:
        value = [random_.randint(1, 3) for _ in range(random_.randint(1, 4))]
        words += [f"pools={{policy: {{gpus: {entries}}}, value: {{gpus: {value}}}}}", "roles.learner.gpus=[]"]
        words += ["roles.learner.pool=policy", "roles.critic={pool: value}"]
    else:
        words.append(f"roles.learner.gpus={entries}")
    if random_.random() < 0.3:
        words.append(f"roles.teacher={{model: m, engines: {random_.randint(1, 3)}, tensor_parallel: 2}}")
    layout = load_layout(resolve("local/grpo-tiny"), words).layout
    assert (layout.hardware.ray_gpus_per_node if not machine.on_cpu else 0) == machine.gpus
    return groups(layout)


def random_groups(random_: random.Random) -> tuple[Group, ...]:
    """One to three groups of either strategy and mixed sizes."""
    return tuple(
        Group(
            f"group {number}",
            tuple(random_.randint(1, 4) for _ in range(random_.randint(1, 6))),
            random_.choice(["PACK", "STRICT_SPREAD"]),  # type: ignore[arg-type]
        )
        for number in range(random_.randint(1, 3))
    )


def asked_of_ray(questions: list[Any], gpus: int, cpus: int, tmp_path: Path) -> list[Any]:
    """The oracle's answers, of nodes with ``gpus`` and ``cpus``."""
    asked, answers = tmp_path / "questions.json", tmp_path / "answers.json"
    asked.write_text(json.dumps(questions))
    command = [sys.executable, str(ORACLE), str(asked), str(answers), str(gpus), str(cpus)]
    oracle = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said, _ = oracle.communicate()
    finally:
        oracle.terminate()
        oracle.wait(timeout=30)
    assert oracle.returncode == 0, said.decode()[-3000:]
    found: list[Any] = json.loads(answers.read_text())
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_ray_places_what_we_say_where_we_say(name: str, tmp_path: Path) -> None:
    machine, random_ = MACHINES[name], random.Random(3)
    asked = [random_layout(random_, machine) for _ in range(machine.num_layouts)]
    asked += [random_groups(random_) for _ in range(machine.num_groups)]
    pairs = [simulated(wanted, machine) for wanted in asked]
    began = time.monotonic()
    rays: list[Answer] = asked_of_ray([question for _, question in pairs], machine.gpus, machine.cpus, tmp_path)
    outcomes = Counter("infeasible" if None in mine else "feasible" for mine, _ in pairs)
    print(f"{len(asked)} layouts asked of Ray in {time.monotonic() - began:.1f} s: {dict(outcomes)}")
    differences = [
        f"{[(group.strategy, group.slots) for group in wanted]}: Ray {ray}, simulated {mine}"
        for wanted, (mine, _), ray in zip(asked, pairs, rays, strict=True)
        if ray != mine
    ]
    assert not differences, "\n".join(differences)
    assert min(outcomes["feasible"], outcomes["infeasible"]) > len(asked) // 10


SPARE = {
    "cores to spare": ("hardware.gpu=cpu", 0),
    "cards to spare": ("hardware.gpu=H100-SXM-80GB", GPUS),
}


@pytest.mark.parametrize("name", SPARE)
def test_bundles_are_where_they_are_drawn_though_ray_has_more_to_give(name: str, tmp_path: Path) -> None:
    gpu, gpus = SPARE[name]
    shapes = [
        ("[1]", 3, 1, 2), ("[1, 1]", 4, 1, 2), ("[2]", 2, 2, 2),
        ("[1, 1, 1]", 5, 1, 2), ("[2, 1]", 2, 1, 2), ("[1]", 3, 1, 1),
    ]  # fmt: skip
    asked = [
        [gpu, f"hardware.nodes={NODES}", f"hardware.gpus_per_node={slots}",
         "roles.reward={workers: 2, cpus_per_worker: 1}",
         f"roles.learner.gpus={learner}", f"roles.rollout.engines={engines}", f"roles.rollout.tensor_parallel={width}"]
        for learner, engines, width, slots in shapes
    ]  # fmt: skip
    drawn = []
    for words in asked:
        homes = place_bundles(load_layout(resolve("local/grpo-tiny"), words).layout)
        drawn.append(neighbours({f"{group} {bundle}": node for (group, bundle), node in homes.items()}))
    found = asked_of_ray([{"layout": words} for words in asked], gpus, 2 * CPUS, tmp_path)
    without_rewards = [
        sorted(kept for node in nodes if (kept := [each for each in node if "reward" not in each])) for nodes in found
    ]
    assert without_rewards == drawn
    assert all(sum("reward" in each for node in nodes for each in node) == 2 for nodes in found)
