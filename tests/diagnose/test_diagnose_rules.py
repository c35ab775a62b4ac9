"""Every rule finds its cause in logs that have it, and not in logs that only look like it."""

from __future__ import annotations

import cases_cluster
import cases_hardware
import cases_memory
import cases_own
import cases_software
import cases_symptoms
import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.index import CAUSES, RULES
from rltui.diagnose.sources import text_source
from rltui.diagnose.wording import STATES

CASES = {
    **cases_memory.CASES,
    **cases_cluster.CASES,
    **cases_hardware.CASES,
    **cases_software.CASES,
    **cases_own.CASES,
    **cases_symptoms.CASES,
}
HAS = [(cause, log) for cause, case in CASES.items() for log in case.has]
LOOKS_LIKE = [(cause, log) for cause, case in CASES.items() for log in case.looks_like]

BEFORE = """\
INFO 10-25 13:08:43 [gpu_model_runner.py:2653] Model loading took 14.2487 GiB and 3.284719 seconds
(EngineCore_DP0 pid=9911) INFO 10-25 13:08:59 [core.py:218] init engine took 16.02 seconds
[2026-03-01 10:12:01,022] [INFO] [timer.py:199:stop] epoch=0/micro_step=17, MemAllocated=22.1GB, MaxMemAllocated=61.3GB
 45%|####5     | 451/1000 [1:02:11<1:15:20,  8.23s/it]
"""
AFTER = """\
node-3:1220:1288 [2] NCCL INFO Channel 03/0 : 10[2] -> 11[3] via P2P/CUMEM
INFO:     10.0.3.7:51820 - "POST /v1/completions HTTP/1.1" 200 OK
"""


def first_causes(log: str) -> list[str]:
    """Return the ids of the diagnoses of ``log`` that are not consequences."""
    return [one.id for one in diagnose([text_source("log", log)]) if not one.secondary]


def test_every_cause_has_cases() -> None:
    assert set(CASES) == set(CAUSES)
    assert len(CAUSES) >= 60
    # whether an exception ended the program, what follows it tells: test_first_exception has those that did
    assert all(case.has or cause == "program_failed" for cause, case in CASES.items())
    assert all(case.looks_like for case in CASES.values())


def test_every_rule_stands_for_a_cause_or_a_state() -> None:
    assert {rule.cause for rule in RULES} <= set(CAUSES) | STATES


@pytest.mark.parametrize(("cause", "log"), HAS, ids=[cause for cause, _ in HAS])
def test_the_cause_is_found_alone(cause: str, log: str) -> None:
    assert first_causes(log) == [cause]


@pytest.mark.parametrize(("cause", "log"), HAS, ids=[cause for cause, _ in HAS])
def test_the_cause_is_found_among_other_lines(cause: str, log: str) -> None:
    assert first_causes(f"{BEFORE * 9}{log}\n{AFTER * 9}") == first_causes(log)


@pytest.mark.parametrize(("cause", "log"), LOOKS_LIKE, ids=[cause for cause, _ in LOOKS_LIKE])
def test_a_look_alike_is_told_apart(cause: str, log: str) -> None:
    assert cause not in first_causes(log)
    assert cause not in first_causes(f"{BEFORE}{log}\n{AFTER}")


def test_a_healthy_log_has_no_cause() -> None:
    assert diagnose([text_source("log", (BEFORE + AFTER) * 50)]) == ()
