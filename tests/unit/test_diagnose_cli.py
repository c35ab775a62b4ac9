"""``rltui why`` and ``rltui explain`` as processes: exit codes, streams, and nothing heavy imported."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"textual", "paramiko", "torch", "ray", "wandb", "transformers", "vllm", "yaml", "trainers"}
ERROR = "ValueError: No available memory for the cache blocks.\n"

RUN_AND_REPORT = """
import json, sys
from rltui.cli.main import main
code = main(sys.argv[2:])
json.dump({"code": code, "modules": sorted({name.partition(".")[0] for name in sys.modules})}, open(sys.argv[1], "w"))
"""


def rltui(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run rltui with ``words``."""
    command = [sys.executable, "-m", "rltui", *words]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, timeout=60, check=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "slurm-1.out"
    path.write_text(f"\x1b[31mstep 1\x1b[0m\n\x1b[1m{ERROR}")
    return path


def test_something_found_is_exit_1_and_json_on_stdout(log: Path) -> None:
    done = rltui("why", "--log", str(log), "--json")
    assert done.returncode == 1
    (diagnosis,) = json.loads(done.stdout)["diagnoses"]
    assert diagnosis["id"] == "engine_kv_no_blocks"
    assert diagnosis["evidence"][0]["file"] == str(log)
    assert diagnosis["evidence"][0]["line"] == 2


def test_a_path_in_place_of_a_run_is_read_as_a_log(log: Path) -> None:
    done = rltui("why", str(log), "--json")
    assert (done.returncode, json.loads(done.stdout)["diagnoses"][0]["id"]) == (1, "engine_kv_no_blocks")


@pytest.mark.parametrize("words", [["/dev/stdin"], ["--log", "/dev/stdin"]])
def test_a_pipe_that_has_a_path_is_read_once_and_whole(words: list[str]) -> None:
    """As of ``rltui why <(ssh node cat log)``."""
    done = rltui("why", *words, "--json", stdin=ERROR.encode())
    assert (done.returncode, json.loads(done.stdout)["diagnoses"][0]["id"]) == (1, "engine_kv_no_blocks")


def test_people_get_no_escapes(log: Path) -> None:
    done = rltui("why", "--log", str(log))
    assert b"\x1b" not in done.stdout + done.stderr
    assert done.stdout.decode().startswith("✗ Nothing was left for the engine's KV cache")


def test_nothing_found_is_exit_0_and_talk_on_stderr() -> None:
    done = rltui("why", "--log", "-", stdin=b"all is well\n")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"No known cause" in done.stderr


def test_an_unknown_exception_is_shown_with_its_frames() -> None:
    log = b'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    return rows[4]\nKeyError: 4\n'
    done = rltui("why", "--log", "-", stdin=log)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].decode().startswith("✗ An error ended the program: KeyError: 4, raised in")
    assert b"The first exception is at -:4:" in done.stdout
    assert done.stdout.count(b"Read the source line") == 1
    document = json.loads(rltui("why", "--log", "-", "--json", stdin=log).stdout)
    assert [(one["id"], one["evidence"][0]["line"]) for one in document["diagnoses"]] == [("program_failed", 4)]
    first = document["first_exception"]
    assert first.pop("next_step")
    place = {"file": "-", "line": 4, "text": "KeyError: 4"}
    assert first == {**place, "frames": ["a.py:3 in f"], "part": "program"}


def test_an_unknown_exception_without_its_source_line_is_a_guess() -> None:
    log = b'Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: 4\n'
    done = rltui("why", "--log", "-", stdin=log)
    assert done.returncode == 1
    assert done.stdout.decode().startswith("? Perhaps: An error ended the program: KeyError: 4, raised in the program")
    assert b"The first exception is at -:3:" in done.stdout


def test_nothing_found_in_json() -> None:
    done = rltui("why", "--log", "-", "--json", stdin=b"")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"schema": 1, "diagnoses": []})


def test_standard_input_may_be_gzip() -> None:
    assert rltui("why", "-", stdin=gzip.compress(ERROR.encode())).returncode == 1


def test_many_logs_are_one_question(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "ray.log"
    other.write_text("RuntimeError: Engine core initialization failed. See root cause above.\n")
    found = json.loads(rltui("why", "--json", "--log", str(other), str(log)).stdout)["diagnoses"]
    assert [(one["id"], one["secondary"]) for one in found] == [
        ("engine_kv_no_blocks", False),
        ("engine_core_died", True),
    ]


@pytest.mark.parametrize("words", [(), ("--log", "/no/such/file"), ("--log", "/"), ("run", "--log", "-"), ("--log",)])
def test_wrong_use_is_exit_2(words: tuple[str, ...]) -> None:
    done = rltui("why", *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr


def test_logs_are_read_without_anything_heavy(log: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-c", RUN_AND_REPORT, str(report), "why", "--log", str(log)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=True)
    result = json.loads(report.read_text())
    assert result["code"] == 1
    assert not HEAVY & set(result["modules"])


def test_explain_tells_a_diagnosis() -> None:
    done = rltui("explain", "nccl_timeout")
    assert done.returncode == 0
    page = done.stdout.decode()
    assert page.startswith("nccl_timeout: ")
    assert "A longer timeout" in page
    assert "https://" in page


def test_explain_lists_and_refuses() -> None:
    assert b"xid_79_fell_off_bus" in rltui("explain").stdout
    assert rltui("explain", "no_such_cause").returncode == 2
