"""How long the placement of 1,000 nodes of eight GPUs takes; run as ``python tests/bench/bench_placement.py``.

Budget: 50 ms on two cores.
"""

from __future__ import annotations

import statistics
import time

from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.placement.draw import draw
from rltui.placement.simulate import place

ROUNDS = 9
ON_1000 = ["hardware.nodes=1000", "hardware.gpus_per_node=8", "hardware.gpu=H100-SXM-80GB"]
ENGINES = "roles.rollout.engines="
SHAPES = {
    "8,000 engines of one": ["roles.learner.gpus=[]", ENGINES + "8000"],
    "500 full learner nodes, 4,000 engines": [f"roles.learner.gpus={[8] * 500}", ENGINES + "4000"],
    "a learner a node, 3,000 engines of two": [
        f"roles.learner.gpus={[1] * 1000}", ENGINES + "3000", "roles.rollout.tensor_parallel=2"
    ],
    "two pools of 1,000, three roles in one": [
        f"pools={{a: {{gpus: {[4] * 1000}}}, b: {{gpus: {[4] * 1000}}}}}", "roles.learner.gpus=[]",
        "roles.learner.pool=a", "roles.rollout.pool=a", ENGINES + "0", "roles.reference={}", "roles.critic={pool: b}",
    ],
}  # fmt: skip


def main() -> None:
    """Print best and median of each shape."""
    print(f"{'shape':42}{'best ms':>9}{'median ms':>11}{'draw ms':>9}{'seats':>8}{'free':>6}")
    for words, overrides in SHAPES.items():
        layout = load_layout(resolve("local/grpo-tiny"), [*ON_1000, *overrides]).layout
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            placement = place(layout)
            times.append((time.perf_counter() - began) * 1000)
        began = time.perf_counter()
        draw(layout, placement)
        drawn = (time.perf_counter() - began) * 1000
        figures = f"{min(times):9.1f}{statistics.median(times):11.1f}{drawn:9.1f}"
        print(f"{words:42}{figures}{len(placement.instances):8d}{placement.free_slots:6d}")


if __name__ == "__main__":
    main()
