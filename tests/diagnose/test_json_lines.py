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
