"""Following files that grow, shrink, change, vanish and are half written, through a real relay."""

from __future__ import annotations

import bisect
import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from watch_support import append

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileChunk
from rltui.watch import lines
from rltui.watch.attempt_logs import AttemptLogs, merged
from rltui.watch.lines import AttemptLines, LineFollower, follow, parse_object
from rltui.watch.runs import last_metrics


class Reading:
    """A follower with all that it has given."""

    def __init__(
        self, client: RelayClient, path: Path, first_bytes: int | None = None, keep_tail: bool = False
    ) -> None:
        self.client = client
        self.lines: list[bytes] = []
        self.follower = LineFollower(
            str(path), lambda new: self.lines.extend(new), first_bytes=first_bytes, keep_tail=keep_tail
        )

    def new(self) -> list[bytes]:
        self.lines.clear()
        follow(self.client, [self.follower])
        return list(self.lines)


def test_only_whole_new_lines_are_given(client: RelayClient, tmp_path: Path) -> None:
    path, reading = tmp_path / "file", Reading(client, tmp_path / "file")
    assert reading.new() == []
    append(path, b"one\ntw")
    assert reading.new() == [b"one"]
    assert reading.follower.line_end == 4
    assert reading.new() == []
    append(path, b"o\n\nthree\n")
    assert reading.new() == [b"two", b"", b"three"]
    assert reading.follower.line_end == path.stat().st_size


def test_a_file_that_was_cut_or_replaced_is_read_from_its_start(client: RelayClient, tmp_path: Path) -> None:
    path, reading = tmp_path / "file", Reading(client, tmp_path / "file")
    append(path, b"first\nsecond\ntorn")
    assert reading.new() == [b"first", b"second"]
    path.write_bytes(b"cut\n")
    assert reading.new() == [b"cut"]
    (tmp_path / "other").write_bytes(b"another file, and longer\n")
    os.replace(tmp_path / "other", path)
    assert reading.new() == [b"another file, and longer"]


def test_a_file_may_vanish_and_come_back(client: RelayClient, tmp_path: Path) -> None:
    path, reading = tmp_path / "file", Reading(client, tmp_path / "file")
    append(path, b"a\nb")
    assert reading.new() == [b"a"]
    path.unlink()
    assert reading.new() == []
    assert reading.follower.problem == ""
    append(path, b"c\n")
    assert reading.new() == [b"c"]


def test_what_cannot_be_read_is_a_problem_and_not_an_error(client: RelayClient, tmp_path: Path) -> None:
    path, reading = tmp_path / "file", Reading(client, tmp_path / "file")
    path.mkdir()
    assert reading.new() == []
    assert "not a regular file" in reading.follower.problem
    path.rmdir()
    append(path, b"a\n")
    assert reading.new() == [b"a"]
    assert reading.follower.problem == ""


def test_of_a_long_file_only_the_end_is_read_where_that_is_wanted(client: RelayClient, tmp_path: Path) -> None:
    path, reading = tmp_path / "file", Reading(client, tmp_path / "file", first_bytes=100)
    append(path, *(b"%09d\n" % number for number in range(1000)))
    assert reading.new() == [b"%09d" % number for number in range(991, 1000)]
    append(path, b"new\n")
    assert reading.new() == [b"new"]


def test_a_reader_of_the_end_that_is_left_behind_jumps(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "JUMP_BYTES", 1000)
    path, reading = tmp_path / "file", Reading(client, tmp_path / "file", first_bytes=50)
    append(path, b"first\n")
    assert reading.new() == [b"first"]
    append(path, *(b"%09d\n" % number for number in range(200)))
    assert reading.new() == [b"%09d" % number for number in range(196, 200)]


def test_a_long_file_is_read_in_bounded_steps(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "STEP_BYTES", 100)
    path, reading = tmp_path / "file", Reading(client, tmp_path / "file")
    append(path, *(b"%09d\n" % number for number in range(100)))
    assert len(reading.new()) == 10 * lines.ROUNDS
    assert len(reading.new()) == 10 * lines.ROUNDS
    assert reading.new() == [b"%09d" % number for number in range(80, 100)]


@pytest.mark.parametrize("keep_tail", [False, True])
def test_an_endless_line_costs_bounded_memory(client: RelayClient, tmp_path: Path, keep_tail: bool) -> None:
    path, reading = tmp_path / "file", Reading(client, tmp_path / "file", keep_tail=keep_tail)
    append(path, b"before\n", b"x" * 3_000_000)
    assert reading.new() == [b"before"]
    assert len(reading.follower._torn) <= lines.MAX_LINE_BYTES
    append(path, b"end\nafter\n")
    new = reading.new()
    assert new[-1] == b"after"
    assert [line[-6:] for line in new[:-1]] == ([b"xxxend"] if keep_tail else [])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=20), max_size=8), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_however_a_file_is_cut_into_reads_its_lines_come_out_whole(parts: list[bytes], sizes: list[int]) -> None:
    content = b"\n".join(parts)
    got: list[bytes] = []
    follower = LineFollower("file", got.extend)
    offset = 0
    for size in [*sizes, len(content)]:
        chunk = content[offset : offset + size]
        follower.feed(FileChunk(chunk, offset, min(len(content), offset + size), 1, 0.0))
        offset += len(chunk)
        assert follower.want().offset == offset
    assert got == content.split(b"\n")[:-1]
    assert follower.line_end == content.rfind(b"\n") + 1


@pytest.mark.parametrize(
    ("own", "other", "order"),
    [
        (["23:59:58 a", "23:59:59 b", "00:00:01 c"], "00:00:00 o", "a b o c"),
        (["22:00:00 a", "  more", "07:00:00 c"], "06:00:00 o", "a more o c"),
        (["08:00:00 a", "23:00:00 b"], "09:00:00 o", "a o b"),
        (["19:59:59 a", "04:00:00 utc", "20:00:01 b", "04:00:02 utc"], "04:00:01 o", "b utc o utc"),
    ],
)
def test_logs_merge_over_midnight(own: list[str], other: str, order: str) -> None:
    found = [text.split()[-1] for text in merged([("own", own), ("other", [other])])]
    assert " ".join(found).endswith(order)
    assert len(found) == len(own) + 1


def test_attempts_are_read_each_to_its_end_in_order(client: RelayClient, tmp_path: Path) -> None:
    got: list[tuple[int, bytes]] = []
    reader = AttemptLines(str(tmp_path), "file", lambda number, new: got.extend((number, line) for line in new))
    append(tmp_path / "attempts/01/file", b"a\nb\n")
    append(tmp_path / "attempts/03/file", b"e\n")
    for _ in range(2):
        follow(client, reader.newest(client, [1, 2, 3]))
        assert got == [(1, b"a"), (1, b"b"), (3, b"e")]
    append(tmp_path / "attempts/03/file", b"f\n")
    append(tmp_path / "attempts/10/file", b"g\n")
    follow(client, reader.newest(client, [1, 2, 3, 10]))
    assert got[3:] == [(3, b"f"), (10, b"g")]
    append(tmp_path / "attempts/03/file", b"too late\n")
    follow(client, reader.newest(client, [1, 2, 3, 10]))
    assert len(got) == 5


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'\0\0\0{"a": 1}\0', {"a": 1}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": -Infinity}', {"a": float("-inf")}),
        (b'{"a": 1', None),
        (b"[1]", None),
        (b"", None),
        (b"[" * 100_000, None),
        (b"9" * 5000, None),
    ],
)
def test_lines_that_are_no_object_are_none(data: bytes, value: object) -> None:
    assert parse_object(data) == value


def tail_of(client: RelayClient, logs: AttemptLogs) -> tuple[str, ...]:
    follow(client, logs.followers())
    return logs.snapshot().lines


def test_a_log_is_shown_plain_and_counts_its_bytes(client: RelayClient, tmp_path: Path) -> None:
    path, logs = tmp_path / "out.log", AttemptLogs(client, str(tmp_path))
    assert tail_of(client, logs) == ()
    append(path, b"\x1b[31mone\x1b[0m\n 1%\r 2%\r 3%\ntwo\nthree\ntorn")
    assert tail_of(client, logs) == ("one", " 3%", "two", "three")
    assert logs.snapshot().offset == path.stat().st_size - 4
    append(path, b" no more\n")
    assert tail_of(client, logs)[-1] == "torn no more"


def test_a_progress_bar_of_hours_is_its_last_state(client: RelayClient, tmp_path: Path) -> None:
    path, logs = tmp_path / "out.log", AttemptLogs(client, str(tmp_path))
    append(path, b"start\n")
    assert tail_of(client, logs) == ("start",)
    append(path, *(b"%6d/1000000 |####      |\r" % number for number in range(50_000)))
    assert tail_of(client, logs) == ("start",)
    append(path, b"all done\n")
    assert tail_of(client, logs)[-1] == " 49999/1000000 |####      | all done"  # nothing that is no bar is covered


def test_no_truncation_and_no_hole_of_a_network_disk_costs_a_whole_line() -> None:
    steps = [{"step": n, "time": float(n), "reward": 0.5, "note": "größer – ✓"} for n in range(1, 41)]
    written = [json.dumps(step, ensure_ascii=False).encode() + b"\n" for step in steps]
    data, ends = b"".join(written), list(itertools.accumulate(len(line) for line in written))
    for size in range(len(data) + 1):
        whole = bisect.bisect_right(ends, size)
        hole = b"\0" * (size % 7)
        for torn in (data[:size], data[:size] + hole, data[:size] + hole + b"\n" + written[-1]):
            told = last_metrics(torn).lines
            known = [int(values["time"]) for values in told]
            assert known[:whole] == list(range(1, whole + 1))
            assert len(known) <= whole + 2
