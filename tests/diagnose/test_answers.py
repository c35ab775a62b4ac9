"""What a log ends in, from finite lists: a guess where nothing else says why, and nothing where the run goes on."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.guesses import GUESS
from rltui.diagnose.sources import text_source


def found(text: str) -> list[tuple[str, float]]:
    """Return the ids and confidences of what is found in the log ``text``."""
    return [(one.id, one.confidence) for one in diagnose([text_source("log", text)])]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("mkdir: cannot create '/srv/out': Permission denied", "access_denied"),
        ("error: odd thing at /srv/cache (Operation not permitted (os error 1))", "access_denied"),
        ("loader: /srv/data/rows.bin: No such file or directory", "path_missing"),
        ("tool: ./step2: cannot execute binary file: Exec format error", "env_import_broken"),
        ("step.sh: line 7: rowtool: command not found", "env_import_broken"),
        ("copy: /srv/out/part-7: Input/output error", "disk_full"),
        ("fetch: could not resolve host: models.example.org", "hf_offline_miss"),
        ("fetch https://models.example.org/a.bin failed", "hf_offline_miss"),
        ("fetch of https://models.example.org: self-signed certificate", "hf_offline_miss"),
        ("crun: the hook could not be found", "container_start"),
        ("pod a-7: ErrImagePull", "container_start"),
        ("begun anew: 2841 Killed", "host_oom_slurm"),
        ("agent: rank 2 left with code -6", "process_crashed"),
        ("[2026-03-01 10:10:00,111 E 7 7] gcs_rpc_client.cc:88: unable to ask for nodes", "ray_head_unreachable"),
    ],
)
def test_a_finite_answer_is_a_guess(line: str, cause: str) -> None:
    [one] = diagnose([text_source("log", f"begin\n{line}\n")])
    assert (one.id, one.confidence) == (cause, GUESS)
    assert one.evidence[0].rank == ""  # none is said: its place in the lists is not one


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: loader: /srv/data/rows.bin: No such file or directory",
        "INFO 10:12 plugin: libodd.so: cannot open shared object file: No such file or directory",
        "slurmstepd: error: Unable to create TMPDIR [/scratch/u/12]: No such file or directory",
        "fetch http://localhost:8000/health failed",
        "[W12 socket.cpp:601] [c10d] the socket has failed to connect to [n2]:29500",
        "cache: /srv/cache: Permission denied, falling back to /tmp",
        "a row says: permission denied to nobody at all, 3 times",
    ],
)
def test_what_is_no_complaint_answers_nothing(line: str) -> None:
    assert found(f"begin\n{line}\n") == []


def test_an_answer_after_which_the_run_goes_on_is_none() -> None:
    answer = "loader: /srv/data/rows.bin: No such file or directory\n"
    assert found(answer + "step: 12 loss: 0.31\n") == []
    assert found("step: 12 loss: 0.31\n" + answer) == [("path_missing", GUESS)]


def test_who_complains_says_more_than_the_answer_it_got() -> None:
    lines = "a: /srv/x: No such file or directory\npodman: cannot mount it\nagent: rank 2 left with code -6\n"
    assert found(lines) == [("container_start", GUESS)]


def test_an_answer_gives_way_to_a_cause() -> None:
    answer = "a: /srv/x: No such file or directory\n"
    end = "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-03-02 DUE TO TIME LIMIT ***\n"
    assert [cause for cause, _ in found(answer + end)] == ["slurm_time_limit"]
