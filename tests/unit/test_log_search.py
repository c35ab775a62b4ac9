"""Searching whole logs through a real relay: what is found, with which numbers, over blocks and pieces."""

from __future__ import annotations

import gzip
import json
import random
import re
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rltui.cli import logs
from rltui.cli.main import main
from rltui.cluster import relay_client
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import Entry, RelayError
from rltui.errors import RltuiError, UsageError
from rltui.onnode import relay_search
from rltui.watch import log_part, log_search
from rltui.watch.attempt_logs import log_files


def found(client: RelayClient, folder: Path, pattern: str) -> list[tuple[int, str]]:
    pieces = log_search.search_log(client, str(folder), "out.log", log_search.LogQuery(pattern))
    return [(hit.line, hit.text) for piece in pieces for hit in piece.hits]


@pytest.mark.parametrize(
    "pattern", ["NaN", r"step 1\d*$", "^a", r"b\s+a", "[^x]*e", r"nan(?!\s)", r"e\Z", "", "$", "(?i)nan", "café"]
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_it_finds_what_a_search_line_by_line_finds(client: RelayClient, tmp_path: Path, pattern: str, end: str) -> None:
    lines = ["a b", "a e", "", "step 12", "nan", "loss NaN nan ", "x", "café", "step 1", "b", "a"]
    (tmp_path / "out.log").write_text("\n".join(lines) + end)
    wanted = [number for number, text in enumerate(lines, 1) if re.search(pattern.encode(), text.encode())]
    assert [line for line, _ in found(client, tmp_path, pattern)] == wanted


def test_numbers_hold_over_blocks_pieces_and_many_hits(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "PIECE_BYTES", 3 << 20)
    monkeypatch.setattr(log_search, "HITS_AT_ONCE", 7)
    count = 300_000
    with (tmp_path / "out.log").open("w") as stream:
        stream.writelines(
            f"step {number} {'needle' if number % 9_999 == 0 else 'straw of some length'}\n"
            for number in range(1, count)
        )
    hits = found(client, tmp_path, "needle")
    assert [line for line, _ in hits] == list(range(9_999, count, 9_999))
    assert all(text == f"step {line} needle" for line, text in hits)


@pytest.mark.parametrize("most", [1, 7, 50_000])
def test_the_newest_hits_of_each_piece_are_the_last_of_all_that_it_has(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    (tmp_path / "out.log").write_text(
        "".join(f"step {number} {'-' * (350 + number % 90)}\n" for number in range(28_000))
    )
    monkeypatch.setattr(log_search, "PIECE_BYTES", 5 << 20)  # two blocks of the relay, one of them not a whole one

    def pieces(limit: int, **how: bool) -> list[log_search.Searched]:
        monkeypatch.setattr(log_search, "NEWEST_HITS", limit)
        monkeypatch.setattr(log_search, "HITS_AT_ONCE", limit)
        return list(log_search.search_log(client, str(tmp_path), "out.log", log_search.LogQuery("step"), **how))

    everything = [hit for piece in pieces(10_000) for hit in piece.hits]
    begins = 0
    newest = pieces(most, newest=True)
    assert len(newest) == 3
    for piece in newest:
        inside = [hit for hit in everything if begins <= hit.offset < piece.offset]
        assert piece.hits == tuple(inside[-min(most, relay_search.MAX_HITS) :])
        begins = piece.offset
    assert begins == newest[0].size


def test_no_line_is_cut_where_one_request_ends_and_the_next_begins(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "PIECE_BYTES", 1000)
    lines = [f"begin {number} {'-' * (number % 90)} end" for number in range(1, 500)]
    (tmp_path / "out.log").write_text("\n".join(lines))
    assert found(client, tmp_path, "begin.*end") == list(enumerate(lines, 1))


def test_a_line_without_end_is_given_around_what_was_found(client: RelayClient, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_bytes(b"x" * 100_000 + b"needle" + b"y" * 100_000)
    [(line, text)] = found(client, tmp_path, "needle")
    assert line == 1
    assert "needle" in text
    assert len(text) <= relay_search.MAX_LINE


def test_what_is_found_cannot_drive_a_terminal(client: RelayClient, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_bytes(b"\x1b]0;title\x07needle\x1b[2J\n")
    assert found(client, tmp_path, "needle") == [(1, "needle")]


def test_a_bad_pattern_and_a_missing_log_are_said(client: RelayClient, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("x\n")
    with pytest.raises(RelayError, match="pattern cannot be read"):
        found(client, tmp_path, "(")
    with pytest.raises(RelayError, match="No such file"):
        found(client, tmp_path / "none", "x")


@pytest.fixture
def grep(tmp_path: Path, client: RelayClient, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    folder = tmp_path / "attempts" / "01"
    folder.mkdir(parents=True)
    (folder / "out.log").write_text("one\ntwo\nthree\n")
    (folder / "gpu-node7.jsonl").write_text("")
    (folder / "node-node7.log").write_text("two of seven\n")
    context = SimpleNamespace(cluster=SimpleNamespace(client=client))
    run = SimpleNamespace(run_id="r", path=str(tmp_path), attempt=1, is_live=False, created_at=0.0)

    monkeypatch.setattr(logs, "open_run", lambda *_: nullcontext((context, run)))

    def run_it(*words: str) -> tuple[int, list[str]]:
        code = main(["logs", "r", *words])
        return code, capsys.readouterr().out.splitlines()

    return run_it


def test_the_verb_prints_numbers_and_ends_as_grep_does(grep: Any) -> None:
    assert grep("--grep", "t") == (0, ["2: two", "3: three"])
    assert grep("--grep", "four") == (1, [])
    code, [text] = grep("--grep", "two", "--node", "node7", "--json")
    assert (code, json.loads(text)["log"], json.loads(text)["line"]) == (0, "node-node7.log", 1)
    assert grep("--grep", "two", "--log", ".log") == (0, ["node-node7.log:1: two of seven", "out.log:2: two"])


def test_lines_since_a_moment_with_and_without_a_pattern(grep: Any, tmp_path: Path) -> None:
    now = datetime.now(tz=timezone.utc).astimezone()
    times = [now - timedelta(minutes=minutes) for minutes in (50, 20, 5)]
    lines = [f"{at:%Y-%m-%d %H:%M:%S} line {number}" for number, at in enumerate(times, 1)]
    (tmp_path / "attempts/01/out.log").write_text("\n".join([*lines[:2], "more of it", lines[2], ""]))
    assert grep("--since", "30m") == (0, [lines[1], "more of it", lines[2]])
    assert grep("--since", "30m", "--grep", "line") == (0, [f"2: {lines[1]}", f"4: {lines[2]}"])
    assert grep("--since", "1m") == (1, [])
    assert grep("--since", "soon")[0] == 2


def test_words_that_choose_nothing_are_refused(grep: Any) -> None:
    assert grep("--grep", "x", "--log", "none")[0] == 2
    assert grep("--grep", "x", "--follow")[0] == 2
    assert grep("--node", "node7") == (0, ["two of seven"])


SERIOUS = {
    "ERROR 11-23 10:00:00 core.py:12] engine died": "error",
    "torch.OutOfMemoryError: CUDA out of memory": "error",
    "[rank3]:[E1123 10:00:00.1 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught": "error",
    "[2026-11-23 10:00:00,123 E 77 78] (raylet) node_manager.cc: a worker died": "error",
    "2026-11-23 WARNING utils.py: slow": "warning",
    "x.py:3: UserWarning: unused": "warning",
    "[2026-11-23 10:00:00,123 W 77 78] (raylet) memory_monitor.cc:99: memory is low": "warning",
    "INFO 11-23 errors so far: 0": "",
    "step 12 error_rate 0.1, ERRORS none": "",
    "prefers E1123 as a name": "",
}


def test_levels_are_those_of_the_writers(grep: Any, tmp_path: Path) -> None:
    (tmp_path / "attempts/01/out.log").write_text("\n".join(SERIOUS) + "\n")
    numbered = [f"{number}: {line}" for number, line in enumerate(SERIOUS, start=1)]
    assert grep("--level", "error") == (0, [one for one in numbered if SERIOUS[one.partition(": ")[2]] == "error"])
    assert grep("--level", "warning") == (0, [one for one in numbered if SERIOUS[one.partition(": ")[2]]])
    assert grep("--level", "error", "--rank", "3") == (0, [numbered[2]])
    assert grep("--rank", "33") == (1, [])
    assert grep("--grep", "raylet", "--level", "error") == (0, [numbered[3]])


def test_a_pattern_that_nobody_can_read_is_a_usage_error(grep: Any) -> None:
    assert grep("--grep", "x(") == (2, [])


def test_a_node_is_not_taken_for_another_whose_name_it_begins() -> None:
    entries = [Entry(name, "file", 1, 0.0) for name in ("gpu-gpu1.jsonl", "node-gpu10.log", "node-gpu1.log")]
    assert {one.name: one.node for one in log_files(entries, ())} == {"node-gpu10.log": "", "node-gpu1.log": "gpu1"}


def test_what_there_is_instead_is_named(grep: Any, capsys: Any) -> None:
    main(["logs", "r", "--grep", "x", "--log", "none"])
    said = capsys.readouterr().err
    assert "Logs: out.log, node-node7.log." in said
    main(["logs", "r", "--grep", "x", "--node", "none"])
    assert "none has no log of its own.\n  Nodes with logs: node7." in capsys.readouterr().err


def test_a_line_of_many_blocks_is_cut_and_the_next_one_is_found(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_client, "PIECE_BYTES", 1000)
    monkeypatch.setattr(log_part, "MAX_LINE_BYTES", 2500)
    (tmp_path / "out.log").write_bytes(b"first\n" + b"x" * 9000 + b"\nlast\n")
    part = log_part.read_part(client, str(tmp_path), "out.log", 3)
    assert [len(line) for line in part.lines] == [5, 2500, 4]


def test_a_piece_is_read_around_a_hit_without_what_comes_before(client: RelayClient, tmp_path: Path) -> None:
    lines = [f"line {number} {'needle' if number % 7000 == 0 else ''}".rstrip() for number in range(1, 60_001)]
    (tmp_path / "out.log").write_text("\n".join(lines) + "\n")
    pieces = log_search.search_log(client, str(tmp_path), "out.log", log_search.LogQuery("needle"))
    hits = [hit for piece in pieces for hit in piece.hits]
    for hit in hits:
        part = log_part.read_part(client, str(tmp_path), "out.log", hit.line, hit.offset)
        assert part.lines[hit.line - part.first_line] == lines[hit.line - 1]
        assert list(part.lines[:-1]) == lines[part.first_line - 1 :][: len(part.lines) - 1]
        assert part.first_line == 1 or hit.line - part.first_line > 1000


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("", "x", None),
        ("NaN [1]", "loss nan [1]", True),
        ("re:loss \\d$", "loss 3", True),
        ("re:loss \\d$", "Loss 3", False),
        ("level:error cuda", "ERROR CUDA broke", True),
        ("level:error cuda", "CUDA works", False),
        ("rank:3 level:warning", "[rank3]: WARNING x", True),
        ("rank:3 level:warning", "[rank33]: WARNING x", False),
        ("role:engine", "(EngineCore pid=77) INFO x", True),
        ("role:engine", "(APIServer pid=77) INFO x", True),
        ("role:engine", "\x1b[36m(vLLMHttpServer pid=77, ip=10.0.0.2)\x1b[0m x", True),
        ("role:engine", "(Learner pid=77) the engine waits (pid=1)", False),
        ("role:learner loss", "(Learner pid=77) loss 1", True),
        ("role:", "x", None),
        ("since:10m level:error", "ERROR x", True),
        ("node:n1", "whatever", True),
    ],
)
def test_what_is_typed_means_these_lines(text: str, line: str, found: bool | None) -> None:
    if found is None and text:
        with pytest.raises(UsageError, match="There is no role"):
            log_search.read_query(text)
        return
    query = log_search.read_query(text)
    assert (bool(re.search(query.pattern, line)) if query.pattern else None) is found


@pytest.mark.parametrize("text", ["re:(", "rank:x", "rank:²", "level:worse a", "since:soon"])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(UsageError):
        log_search.read_query(text)


@pytest.mark.parametrize(
    "query",
    [
        log_search.query_of(level="error"),
        log_search.query_of(level="warning"),
        log_search.query_of(level="error", rank=3),
        log_search.query_of(grep=r"raylet\) memory", level="warning"),
        log_search.query_of(grep="died", level="error"),
        log_search.query_of(role="engine"),
        log_search.query_of(grep="reward"),
    ],
    ids=lambda query: query.pattern[:30],
)
def test_anchors_change_nothing_but_the_time(client: RelayClient, tmp_path: Path, query: log_search.LogQuery) -> None:
    assert query.anchors
    rows = [*SERIOUS, "(EngineCore pid=77) ERROR reward died", "", "reward at 612 W of E0 F1", "café reward"]
    (tmp_path / "out.log").write_text("\n".join(random.Random(7).choices(rows, k=5000)))
    plain = msgspec.structs.replace(query, anchors=())
    told = [
        [(hit.line, hit.offset, hit.text) for piece in log_search.search_log(client, str(tmp_path), "out.log", one)
         for hit in piece.hits]
        for one in (query, plain)
    ]  # fmt: skip
    assert told[0] == told[1] != []


def test_a_packed_log_that_is_damaged_is_told(client: RelayClient, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"".join(b"line %d %d\n" % (number, number**2) for number in range(5000))))
    packed[50:52] = b"\0\0"
    (tmp_path / "out.log.gz").write_bytes(packed)
    with pytest.raises(RltuiError, match="cannot be unpacked"):
        log_part.read_part(client, str(tmp_path), "out.log.gz", 1)
