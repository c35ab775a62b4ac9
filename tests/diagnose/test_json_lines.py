"""Logs written as records: what they say is read as text, and evidence stands in the line of the file."""

from __future__ import annotations

import json

import pytest

from rltui.diagnose.diagnose import examine
from rltui.diagnose.json_lines import unwrapped
from rltui.diagnose.sources import text_source

TRACEBACK = 'Traceback (most recent call last):\n  File "/w/run.py", line 7, in load\n    rows()\nLookupError: strange'
STEP = json.dumps({"level": "info", "ts": 1.5, "msg": "step 4 of 90"})
FAILED = json.dumps({"level": "error", "ts": 1.5, "msg": "no rows", "exc_info": TRACEBACK})


def text(*blocks: bytes) -> bytes:
    return b"".join(unwrapped(blocks))


@pytest.mark.parametrize(
    "line",
    [
        '{"loss": 0.4, "step": 7}',
        '{"text": "an answer", "score": 1.0}',
        '{"message": "cut off", "level": "err',
        '{"level": "error", "ts": 1.5, "code": 3}',
        "  {",
    ],
    ids=["metrics", "a sample", "cut off", "no message", "no record"],
)
def test_what_is_no_record_of_a_log_stays_as_it_is(line: str) -> None:
    assert text(f"{line}\n{STEP}\n".encode()) == f"{line}\nINFO:log:step 4 of 90\n".encode()


def test_records_may_be_cut_between_blocks() -> None:
    whole = f"{STEP}\nplain\n{STEP}".encode()
    assert text(*(whole[at : at + 7] for at in range(0, len(whole), 7))) == text(whole)


@pytest.mark.parametrize("before", [1, 3])
def test_the_evidence_has_the_number_of_its_record(before: int) -> None:
    lines = [*[FAILED.replace("strange", "odd").replace("error", "warning")] * before, STEP, FAILED]
    findings = examine([text_source("log", "\n".join(lines))])
    assert findings.first_exception is not None
    assert findings.first_exception.fields["exception"] == "LookupError: strange"
    assert findings.first_exception.fields["line"] == str(before + 2)
    assert findings.diagnoses[0].evidence[0].line == before + 2


def test_a_file_of_many_blocks_keeps_its_numbers() -> None:
    filler = [json.dumps({"level": "info", "ts": 1.5, "msg": "a table:\\n  one\\n  two\\n  three"})] * 40_000
    findings = examine([text_source("log", "\n".join([*filler, FAILED]))])
    assert findings.first_exception is not None
    assert findings.first_exception.fields["line"] == "40001"


@pytest.mark.parametrize(
    "before",
    [
        "2026-01-05T10:00:00.123456789Z stderr F ",
        "(TaskRunner pid=1234) ",
        "[pod/trainer-0/main] ",
        "Nov 26 10:00:00 node7 train[312]: ",
        "trainer-1  | ",
    ],
)
def test_who_wrote_a_record_may_stand_before_it(before: str) -> None:
    findings = examine([text_source("log", f"{before}{STEP}\n{before}{FAILED}\n")])
    assert findings.first_exception is not None
    assert findings.first_exception.fields["exception"] == "LookupError: strange"
    assert findings.first_exception.fields["line"] == "2"


def test_settings_in_quotes_before_braces_are_no_record() -> None:
    line = 'INFO: running with "x" {"level": "info", "msg": "a"}'
    assert text(f"{line}\n".encode()) == f"{line}\n".encode()


@pytest.mark.parametrize(("level", "found"), [("info", ["LookupError: strange"]), ("warning", [])])
def test_a_collector_gives_what_programs_print_a_level_of_its_own(level: str, found: list[str]) -> None:
    """The lines of a traceback have it one by one; the program itself would have logged it whole, or as a warning."""
    lines = [{"time": 1.5, "level": level, "message": line} for line in (*TRACEBACK.split("\n"), "step 4 of 90")]
    first = examine([text_source("log", "\n".join(map(json.dumps, lines)))]).diagnoses
    assert [one.evidence[0].text for one in first] == found


@pytest.mark.parametrize(
    "line",
    [
        f"2026-01-05 10:00:00 - ERROR - rollout failed: {TRACEBACK!r}",
        f"worker 3 said {json.dumps(TRACEBACK)}",
        f"{{'status': 'failed', 'rank': 3, 'traceback': {TRACEBACK!r}}}",
        f'      "py_callstack": {json.dumps(TRACEBACK)},',
        f"worker 3 said {json.dumps(json.dumps(TRACEBACK))}",
    ],
    ids=["repr", "json", "dictionary", "torch elastic", "json in json"],
)
def test_a_traceback_written_into_one_line_is_read(line: str) -> None:
    findings = examine([text_source("log", f"step 4 of 90\n{line}\n")])
    assert findings.first_exception is not None
    assert findings.first_exception.fields["exception"].rstrip('\\"') == "LookupError: strange"
    assert findings.first_exception.fields["frames"] == "/w/run.py:7 in load"
    assert findings.first_exception.fields["line"] == "2"


@pytest.mark.parametrize(
    "line",
    [
        f"sample 3: {{'role': 'tool', 'content': {TRACEBACK!r}}}",
        f"observation: {json.dumps(TRACEBACK)}",
        f"{{'exit_code': 1, 'stderr': {TRACEBACK!r}}}",
    ],
)
def test_a_traceback_of_what_a_sample_ran_is_none_of_the_run(line: str) -> None:
    assert examine([text_source("log", f"{line}\n")]).diagnoses == ()


@pytest.mark.parametrize("before", ["E   ", "> "])
def test_lines_that_pytest_or_a_letter_quotes_are_read(before: str) -> None:
    quoted = "\n".join(before + line for line in TRACEBACK.split("\n"))
    findings = examine([text_source("log", quoted)])
    assert findings.first_exception is not None
    assert findings.first_exception.fields["exception"] == "LookupError: strange"
