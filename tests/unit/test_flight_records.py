"""torch's flight records: who did not join which collective, and files that are not what they say."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rltui.cli.main import main
from rltui.diagnose.flight_record import flight_lines, lines_of, record_of
from rltui.onnode import flight_recorder


def call(seq: int, *, op: str = "all_reduce", over: bool = False, size: int = 8, group: str = "0") -> dict[str, Any]:
    """An entry as torch 2.13 writes it."""
    frames = [
        {"name": "all_reduce", "filename": "/v/torch/distributed/distributed_c10d.py", "line": 3245},
        {"name": "update", "filename": "/w/verl/actor.py", "line": 40 + seq},
    ]
    return {
        "collective_seq_id": seq, "profiling_name": f"nccl:{op}", "process_group": (group, f"group_{group}"),
        "input_sizes": [[size]], "input_dtypes": ["Float"], "state": "completed" if over else "started",
        "retired": over, "is_p2p": False, "frames": frames,
    }  # fmt: skip


def dump(*entries: dict[str, Any], groups: dict[str, str] | None = None) -> dict[str, Any]:
    config = {
        name: {"name": name, "desc": "", "ranks": ranks} for name, ranks in (groups or {"0": "[0, 1, 2]"}).items()
    }
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": list(entries)}


def said(*dumps: dict[str, Any]) -> list[str]:
    return flight_lines([record_of(rank, one) for rank, one in enumerate(dumps)])


def test_the_rank_that_did_not_join_is_named_with_what_it_did_last() -> None:
    ahead = dump(call(3, over=True), call(4), call(5), call(6))
    (line,) = said(ahead, dump(call(3, over=True)), dump(call(3, over=True), call(4)))
    assert line.startswith(
        "stuck: rank 1 of 3 has not joined all_reduce 4 of group_0 ([[8]] Float): its last there is "
    )
    assert line.endswith("all_reduce 3, from update (verl/actor.py:43); ranks 0, 2 wait in it, from update "
                         "(verl/actor.py:44)")  # fmt: skip


def test_a_rank_that_waits_in_another_group_is_not_at_fault() -> None:
    groups = {"0": "[0, 1, 2]", "1": "[1, 2]"}
    waits = dump(call(4), groups=groups)
    held_up = dump(call(3, over=True), call(9, group="1"), groups=groups)
    away = dump(call(3, over=True), call(8, group="1", over=True), groups=groups)
    lines = said(waits, held_up, away)
    assert [line.partition(" has")[0] for line in lines] == ["stuck: rank 2 of 3"]


def test_an_end_that_is_noted_late_makes_nobody_wait() -> None:
    groups = {"0": "[0, 1, 2]", "1": "[]"}
    waits = dump(call(1, group="1", over=True), call(2, group="1"), groups=groups)
    (line,) = said(waits, dump(call(4), groups=groups), dump(call(3, over=True), call(1, group="1"), groups=groups))
    assert line.startswith("stuck: rank 2 of ")


def test_a_rank_without_a_record_is_named_only_where_the_others_gave_theirs() -> None:
    (line,) = said(dump(call(4)), dump(call(4)))
    assert line.startswith("flight: rank 2 of 3 left no record")
    many = dump(call(4), groups={"0": str(list(range(64)))})
    assert said(many, many) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (call(4, op="all_gather"), "rank 0 is in all_reduce ([[8]] Float, from update (verl/actor.py:44)), but rank 2"),
        (call(4, size=9), "but rank 2 is in all_reduce ([[9]] Float"),
    ],
)
def test_ranks_that_do_different_things_at_one_number_are_told_apart(other: dict[str, Any], words: str) -> None:
    (line,) = said(dump(call(4)), dump(call(4)), dump(other))
    assert line.startswith("desync: at number 4 of group_0 ")
    assert words in line


def test_nobody_is_accused_where_nobody_waits() -> None:
    over = dump(call(3, over=True), call(4, over=True))
    assert said(over, over, dump(call(3, over=True))) == []
    inside = (
        dump(call(4, op="all_to_all", size=3)),
        dump(call(4, op="all_to_all", size=7)),
        dump(call(4, op="all_to_all")),
    )
    assert said(*inside) == [], "all have joined, and sizes may differ"
    assert said(*(dump({**call(4), "is_p2p": True}) for _ in range(2)), dump()) == []


class Harm:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return os.mkdir, (self.path, 0o700)


def test_a_record_that_would_run_something_is_refused_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harm = tmp_path / "harm"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps({"entries": [Harm(str(harm))]}, protocol)
        with pytest.raises(ValueError, match=r"plain data|cannot be read"):
            flight_recorder.read(data)
        (tmp_path / f"nccl_trace_rank_{protocol}").write_bytes(data)
    files = sorted(map(str, tmp_path.glob("nccl_trace_rank_*")))
    assert main(["why", "--log", *files]) == 0
    assert "nccl_trace_rank_2 is no flight record: it holds more than plain data" in capsys.readouterr().err
    assert not harm.exists()


def test_a_record_that_claims_to_be_huge_takes_no_memory() -> None:
    for word in (
        b"r" + struct.pack("<I", 2**31),
        b"X" + struct.pack("<I", 2**31) + b"x",
        b"\x95" + b"\xff" * 7 + b"\x7f",
    ):
        with pytest.raises(ValueError, match="cannot be read"):
            flight_recorder.read(b"\x80\x04}" + word)


@given(st.binary(max_size=200))
def test_whatever_is_read_is_a_record_or_refused(data: bytes) -> None:
    for beginning in (b"", b"\x80\x02}q\x00", b"{"):
        try:
            found = flight_recorder.read(beginning + data)
        except ValueError:
            continue
        assert isinstance(found["entries"], list)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*call(1), *dump(), "ranks"]), inner),
    max_leaves=20,
)


@example([{**call(1), "time_created_ns": "1700000000000000000"}], {})
@given(st.lists(st.dictionaries(st.sampled_from(list(call(1))), ODD), max_size=4), ODD)
def test_records_of_another_form_break_nothing(entries: list[Any], config: Any) -> None:
    record = record_of(0, {"entries": entries, "pg_config": config})
    assert all(line.startswith(("stuck: rank ", "flight: rank ", "desync: at ")) for line in flight_lines([record]))


def test_records_are_read_by_hand_whatever_made_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, entries in enumerate(([call(3, over=True), call(4)], [call(3, over=True)])):
        found = dump(*entries, groups={"0": "[0, 1]"})
        for name, data in (("nccl_trace_rank_", pickle.dumps(found, 2)), ("my_fr_", json.dumps(found).encode())):
            (tmp_path / f"{name}{rank}").write_bytes(data)
    log = tmp_path / "out.log"
    log.write_text("all is well\n")
    for name in ("nccl_trace_rank_", "my_fr_"):
        files = [str(tmp_path / f"{name}{rank}") for rank in range(2)]
        assert main(["why", "--json", "--log", str(log), *files]) == 1
        (found,) = json.loads(capsys.readouterr().out)["diagnoses"]
        assert found["id"] == "process_awaited"
        assert "rank 1 of 2 has not joined all_reduce 4 of group_0" in found["summary"]


def test_ranks_are_in_the_names() -> None:
    assert flight_recorder.named("/t/nccl_trace_rank_12") == ("/t/nccl_trace_rank_", 12)
    assert flight_recorder.named("evidence/nccl_trace_learner_rank_0.json") == ("evidence/nccl_trace_learner_rank_", 0)
    assert flight_recorder.named("1764-n1.json") is None
    lines, unusable = lines_of({"/t/notes": pickle.dumps(dump(), 2)})
    assert (lines, unusable) == ([], ["/t/notes: no rank is in its name, such as nccl_trace_rank_0"])
