"""Parts of a self-test that fail: wrong bytes are found, and a process that crashes or hangs costs its own part."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, get_args

import pytest
from trainer_support import LAYOUT, ROOT

from free_ports import free_ports
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.selftest import PARTS, PartName
from rltui.onnode import rundir
from trainers.selftest import link_parts, node_parts
from trainers.selftest.program import function_of
from trainers.weights import Bucket, WeightGroup

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

SIZE = 2 * link_parts.PARAMETER_BYTES


@pytest.mark.parametrize("is_whole", [True, False])
def test_one_wrong_byte_of_a_weight_is_found(monkeypatch: pytest.MonkeyPatch, is_whole: bool) -> None:
    unpack = Bucket.unpack

    def corrupted(self: Bucket, buffer: Any) -> Any:
        buffer[-1] ^= 1
        return unpack(self, buffer)

    if not is_whole:
        monkeypatch.setattr(Bucket, "unpack", corrupted)
    group = WeightGroup("127.0.0.1", free_ports(1)[0], 2, 300.0)
    with ThreadPoolExecutor(2) as threads:
        sent = threads.submit(link_parts.send, group, SIZE)
        received = threads.submit(link_parts.receive, group, 1, SIZE)
        if is_whole:
            assert received.result(60) == "gloo"
            assert sent.result(60) > 0
            return
        with pytest.raises(ValueError, match=r"1 parameters arrived with other bytes, the first: layer\.1"):
            received.result(60)
        assert sent.exception(60) is not None


def test_kernels_of_vllm_that_do_not_load_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert node_parts.vllm_problems() == []
    monkeypatch.setattr(node_parts, "VLLM_KERNELS", ("vllm._nothing", "json.broken"))
    assert node_parts.vllm_problems()[0].startswith("this vLLM has none of vllm._nothing, json.broken")

    def broken(name: str) -> None:
        raise ImportError("undefined symbol: torch_list_size")

    monkeypatch.setattr(node_parts.importlib, "import_module", broken)
    (told,) = node_parts.vllm_problems()
    assert told.endswith("built for another torch or CUDA: undefined symbol: torch_list_size")


def test_every_part_has_a_name_in_the_schema_and_a_function() -> None:
    assert [part.name for part in PARTS] == list(get_args(PartName))
    for part in PARTS:
        assert callable(function_of(part.name))


def start(run: Path, words: list[str], environment: dict[str, str]) -> tuple[int, Path]:
    """The self-test of a layout with ``words``: its exit code, and its attempt."""
    attempt = run / "attempts" / "01"
    attempt.mkdir(parents=True)
    (attempt / rundir.LAYOUT).write_text(dump_layout(load_layout(LAYOUT, [*words, "name=selftest"]).layout))
    argv = [sys.executable, "-m", "trainers.selftest", "--attempt", str(attempt)]
    return subprocess.run(argv, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL).returncode, attempt


def rows_of(attempt: Path) -> dict[str, dict[str, Any]]:
    told = json.loads((attempt / rundir.SELFTEST).read_text())
    return {f"{row['part']} {row['what']}".rstrip(): row for row in told["rows"]}


@pytest.mark.slow
def test_agents_a_judge_and_experts_are_tried_with_tiny_models(tmp_path: Path, ray_environment: dict[str, str]) -> None:
    parts = "selftest={parts: [agents, judge, router-replay], thorough: true, seconds: 3000}"
    hardware = ["hardware={nodes: 1, gpus_per_node: 2, gpu: cpu}", "roles.learner.gpus=[1]", "roles.rollout.engines=1"]
    code, attempt = start(tmp_path, [parts, *hardware], ray_environment)
    rows = rows_of(attempt)
    assert code == 0, rows
    assert rows.keys() == {
        "agents games", "agents trainer and engine agree", "judge", "judge engines agree beside it", "router-replay",
    }  # fmt: skip
    for name in ("agents trainer and engine agree", "judge engines agree beside it", "router-replay"):
        assert abs(rows[name]["measured"]["fresh_mismatch_kl"]) < 1e-6
    first, *_ = (attempt / "selftest/router-replay/attempts/01" / rundir.METRICS).read_text().splitlines()
    assert json.loads(first)["response_length"] > 1.0  # there was something to replay


FAULTS = """
import os, signal, sys
for part, number in {"versions": signal.SIGSEGV, "clock": signal.SIGSTOP}.items():
    if ["--part", part] == sys.orig_argv[-2:]:
        os.kill(os.getpid(), number)
"""
"""What befalls the processes of two parts as they begin, before they can be over."""


@pytest.mark.slow
def test_a_part_that_crashes_and_one_that_hangs_cost_themselves_only(
    tmp_path: Path, ray_environment: dict[str, str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULTS)
    environment = {**ray_environment, "PYTHONPATH": f"{ray_environment['PYTHONPATH']}:{tmp_path}"}
    code, attempt = start(tmp_path, ["selftest={parts: [versions, clock, disk], seconds: 10}"], environment)
    assert code == 1
    rows = rows_of(attempt)
    figures = {name: (row["verdict"], row["figure"]) for name, row in rows.items()}
    assert figures["versions"] == ("failed", "its process ended with signal 11 (SIGSEGV)")
    assert figures["clock"][0] == "failed"
    assert figures["clock"][1].startswith("it did not end within ")
    assert figures["disk"] == ("skipped", "the time of all parts was over; --only tries it alone")
    assert all(row["remedy"] for row in rows.values() if row["verdict"] == "failed")
    (error,) = [json.loads(line) for line in (attempt / rundir.EVENTS).read_text().splitlines() if '"error"' in line]
    assert error["text"] == "2 of 3 parts failed: versions, clock"
