"""Ray's own answers to placement questions: a small real cluster on loopback, asked for one group after the other.

A program of its own (``python ray_oracle.py QUESTIONS ANSWERS GPUS CPUS``), because Ray reads its authentication
settings once in a process, when it is imported.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NODES, GPUS, CPUS = 4, 4, 5  # GPUs and cores where the test asks for no others
DEADLINE_S = 20.0
LOOPBACK = "127.0.0.2"  # Ray replaces 127.0.0.1 by the outer address of the machine
REFUSED = ("INFEASIBLE", "NO_RESOURCES")

Answer = list["list[list[int]] | None"]
"""Of each group its bundle sizes by node; None, and nothing after it, where Ray cannot place one."""


def main(questions: Path, answers: Path, gpus: int, cpus: int) -> None:
    """Answer every list of groups in ``questions``: ``{"strategy", "bundles" (resources), "slots", "patient"}``.

    Where a question is an object, ``{"layout": words}``, the trainers reserve the layout's groups; see ``reserved``.

    Args:
        questions: Where they are.
        answers: Where the answers go.
        gpus: GPUs that Ray is told each node has.
        cpus: CPU cores that it is told.
    """
    with tempfile.TemporaryDirectory(prefix="rp", dir="/tmp") as folder:  # short: socket paths end at 107 bytes
        token = Path(folder, "token")
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        # Cluster notes its address in Ray's temporary folder, where another Ray of this machine may have its own
        Path(folder, "ray").mkdir()
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token), RAY_TMPDIR=folder)
        import ray
        from ray.cluster_utils import Cluster

        sys.path.append(str(Path(__file__).parents[1]))
        import bare_ray
        from rltui.onnode import ray_start

        ray_start.leave_out()
        bare_ray.leave_out("dashboard", "runtime_env")  # nobody's worker is started
        common: dict[str, Any] = {"object_store_memory": 80 << 20, "node_ip_address": LOOPBACK}
        head = {**common, "num_cpus": 0, "num_gpus": 0, "include_dashboard": False, "temp_dir": f"{folder}/ray"}
        nodes = Cluster()
        try:
            nodes.add_node(**head)
            for _ in range(NODES):
                nodes.add_node(wait=False, num_cpus=cpus, num_gpus=gpus, **common)
            nodes.wait_for_nodes(timeout=60)
            ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
            began = time.monotonic()
            whole = {"GPU": NODES * gpus, "CPU": NODES * cpus}
            asked = json.loads(questions.read_text())
            found = [reserved(each["layout"], whole) if "layout" in each else ask(each, whole) for each in asked]
            print(f"asked for {time.monotonic() - began:.1f} s", flush=True)
            answers.write_text(json.dumps(found))
        finally:
            ray.shutdown()
            nodes.shutdown()


def ask(groups: list[dict[str, Any]], whole: dict[str, int]) -> Answer:
    """What Ray does with ``groups``, created in turn and removed again."""
    import ray

    handles = []
    answers: Answer = []
    try:
        for group in groups:
            handles.append(ray.util.placement_group(group["bundles"], strategy=group["strategy"]))
            if not placed(handles[-1], group["patient"]):
                return [*answers, None]
            homes = ray.util.placement_group_table(handles[-1])["bundles_to_node_id"]
            answers.append(shape({int(bundle): node for bundle, node in homes.items()}, group["slots"]))
        return answers
    finally:
        for handle in handles:
            ray.util.remove_placement_group(handle)
        await_free(whole)


def reserved(words: list[str], whole: dict[str, int]) -> list[list[str]]:
    """Who shares a node once the trainers have reserved the groups of a layout: ``[["learner 0", "engine 1"], …]``."""
    import ray

    from rltui.layout.load import load_layout
    from rltui.layout.presets import resolve
    from trainers.placement import bundle_nodes, reserve

    handles = reserve(load_layout(resolve("local/grpo-tiny"), words).layout, DEADLINE_S, lambda: None)
    homes = {f"{group} {bundle}": node for (group, bundle), node in bundle_nodes(handles).items()}
    for handle in handles.values():
        ray.util.remove_placement_group(handle)
    await_free(whole)
    return neighbours(homes)


def neighbours(homes: Mapping[str, Any]) -> list[list[str]]:
    """The sorted bundles of each node that has any, sorted: what is left when nodes may be permuted."""
    nodes: dict[Any, list[str]] = {}
    for bundle, node in homes.items():
        nodes.setdefault(node, []).append(bundle)
    return sorted(sorted(bundles) for bundles in nodes.values())


def placed(handle: Any, patient: bool) -> bool:
    """Whether Ray places the group; a refusal counts at once or, patiently, at the deadline.

    Ray's view of what is free is complete when it is asked (see ``await_free``), so its first word is its last.
    """
    import ray

    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        table = ray.util.placement_group_table(handle)
        if table["state"] == "CREATED":
            return True
        if not patient and table["stats"]["scheduling_state"] in REFUSED:
            return False
        time.sleep(0.002)
    return False


def shape(homes: dict[int, Any], slots: list[int]) -> list[list[int]]:
    """Sorted bundle sizes of each node that has any, sorted: what is left when nodes may be permuted."""
    nodes: dict[Any, list[int]] = {}
    for bundle, node in homes.items():
        nodes.setdefault(node, []).append(slots[bundle])
    return sorted(sorted(sizes) for sizes in nodes.values())


def await_free(whole: dict[str, int]) -> None:
    """Wait until Ray has everything back, or the next answer would be about a smaller cluster."""
    import ray

    deadline = time.monotonic() + DEADLINE_S
    while any(ray.available_resources().get(kind, 0) < number for kind, number in whole.items()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Ray did not get its GPUs back: {ray.available_resources()}")
        time.sleep(0.005)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is ended too
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
