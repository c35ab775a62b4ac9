"""What the installed torch was built for against this node's cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.onnode import card_kernels, preflight

CU13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ("7.0", CU13, False), ("7.5", CU13, True), ("8.9", CU13, True), ("9.0", CU13, True), ("12.1", CU13, True),
        ("7.0", ["sm_70"], True), ("8.0", ["sm_86"], False), ("10.0", ["sm_90", "compute_90"], True),
        ("10.0", ["sm_90"], False), ("9.0", ["sm_90a"], True), ("10.0", ["sm_90a"], False),
    ],
)  # fmt: skip
def test_a_build_runs_where_nvidias_rules_say(capability: str, built_for: list[str], runs: bool) -> None:
    assert card_kernels.runs_on(capability, built_for) is runs


def program(path: Path, *lines: str) -> str:
    path.write_text("\n".join(["#!/bin/sh", *lines]))
    path.chmod(0o755)
    return str(path)


def test_a_card_that_torch_was_not_built_for_stops_an_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "nvidia-smi", "echo 7.0", "echo 9.0", "echo 7.0")
    python = program(tmp_path / "python", f"echo 2.13.0+cu130 13.0 {' '.join(CU13)}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    [problem] = card_kernels.problems(preflight.compute_capabilities(), python)
    assert "compute capability 7.0 in torch 2.13.0+cu130 (CUDA 13.0), which was built for sm_75" in problem
    without = program(tmp_path / "cpu", "echo 2.13.0+cpu None")
    [problem] = card_kernels.problems(["9.0"], without)
    assert "built without CUDA" in problem
    [problem] = card_kernels.problems(
        ["9.0"], program(tmp_path / "shy", "echo Welcome to Alps", "echo 2.13.0+cu130 13.0")
    )
    assert "torch 2.13.0+cu130 (CUDA 13.0) cannot use this node's GPUs: the driver is too old" in problem


def test_a_python_that_does_not_start_in_time_is_said_and_is_no_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "PROBE_S", 0.2)
    [words] = preflight.missing_modules(program(tmp_path / "slow", "exec sleep 20"), ["torch"], "")
    assert words.startswith("anything (it did not start within")


def test_what_does_not_answer_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert card_kernels.problems(["9.0"], program(tmp_path / "broken", "exit 1")) == []
    assert card_kernels.problems(["[N/A]"], "nowhere") == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preflight.compute_capabilities() == []
