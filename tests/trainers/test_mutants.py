"""The thresholds of learning bite: the same loops with one fault each miss them, and without a fault they do not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from learning import STEPS, check_learned, shortcomings
from trainer_support import FORKS, ROOT

from forks import forked

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
MUTANTS: dict[str, dict[str, list[str]]] = {
    # what a run with this fault lacks
    "ppo": {
        "whole": [],
        "sign of the token's advantages": ["reward", "critic"],
        "critic not trained": ["critic"],
    },
    "opd": {
        "whole": [],
        "sign of the divergence": ["reward", "reverse KL"],
    },
    "grpo": {
        "whole": [],
        "sign of the group's advantages": ["reward"],
        "no weights": ["reward"],
        "stale weights": ["reward"],
    },
}
UNNOTICED = "no weights, unnoticed"
"""The engine claims every new version and has none, and the loop's own check of parity is as it is."""


def run(algorithm: str, folder: Path, server: str) -> dict[str, Any]:
    """All runs of an algorithm, in a process of their own, which DeepSpeed may keep its global state in.

    Args:
        algorithm: Whose runs.
        folder: Where models are cached.
        server: Forks the process.
    """
    names = [*MUTANTS[algorithm], UNNOTICED]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE.parent, HERE))),
        "RLTUI_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    command = [*forked(server), str(HERE / "mutants.py"), algorithm, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def runs(model_cache: Path, ray_environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    def all_of(algorithm: str) -> dict[str, Any]:
        return run(algorithm, model_cache, ray_environment[FORKS])

    with ThreadPoolExecutor(2) as pool:
        yield dict(zip(MUTANTS, pool.map(all_of, MUTANTS), strict=True))


@pytest.mark.parametrize(
    ("algorithm", "name", "lacks"),
    [(algorithm, name, lacks) for algorithm, mutants in MUTANTS.items() for name, lacks in mutants.items()],
)
def test_a_run_lacks_what_its_fault_costs(runs: dict[str, Any], algorithm: str, name: str, lacks: list[str]) -> None:
    found = runs[algorithm][name]
    assert (len(found["lines"]), found["error"]) == (STEPS, "")
    assert shortcomings(algorithm, found["lines"]) == lacks
    if not lacks:
        check_learned(algorithm, found["lines"])


@pytest.mark.parametrize("algorithm", MUTANTS)
def test_engines_without_the_weights_that_they_claim_are_found_out_at_once(
    runs: dict[str, Any], algorithm: str
) -> None:
    found = runs[algorithm][UNNOTICED]
    assert "the engine does not run the learner's weights" in found["error"]
    assert len(found["lines"]) <= 2
