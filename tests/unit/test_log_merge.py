"""All logs of an attempt as one stream in time order: from any place, both ways, searched, whatever its lines say."""

from __future__ import annotations

import os
import random
from datetime import datetime, timezone
from pathlib import Path

import pytest

from rltui.cluster.relay_client import RelayClient
from rltui.watch import log_merge
from rltui.watch.log_merge import LogSource, MergedReader, end_of, open_sources, place_of, search_merged
from rltui.watch.log_search import query_of
from rltui.watch.snapshots import LogFile

BEGAN = datetime(2026, 1, 1, 8, 0, tzinfo=timezone.utc).timestamp()


def clock(second: float) -> str:
    return f"{datetime.fromtimestamp(BEGAN + second, timezone.utc):%Y-%m-%d %H:%M:%S.%f}"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """Three logs of nodes, lines of which follow each other at random; their texts in the order of time."""
    monkeypatch.setattr(log_merge, "LEAST_BYTES", 4096)
    monkeypatch.setattr(log_merge, "BUFFER_BYTES", 1)
    files: dict[str, list[str]] = {f"n{number}.log": [] for number in range(3)}
    draw, expected = random.Random(1), []
    for second in range(3000):
        lines = [
            f"{clock(second)} line {second}",
            *(f"   more {second}.{part}" for part in range(draw.choice((0, 0, 3)))),
        ]
        files[draw.choice(sorted(files))].extend(lines)
        expected += lines
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        os.utime(tmp_path / name, (BEGAN + 3000, BEGAN + 3000))
    return tmp_path, expected


def sources_in(client: RelayClient, folder: Path) -> list[LogSource]:
    files = [LogFile(name=path.name, size=path.stat().st_size) for path in sorted(folder.iterdir())]
    return open_sources(client, str(folder), files, timezone.utc, BEGAN)


def test_forwards_and_backwards_are_the_same_stream(client: RelayClient, logs: tuple[Path, list[str]]) -> None:
    folder, expected = logs
    sources = sources_in(client, folder)
    assert [line.text for line in MergedReader(client, sources, {}).lines(10**6)] == expected
    back = MergedReader(client, sources, end_of(sources), backwards=True)
    taken = []
    while lines := back.lines(777):
        taken += lines
    assert [line.text for line in reversed(taken)] == expected
    assert set(back.place.values()) == {0}


def test_from_a_moment_on_and_on_from_where_one_stopped(client: RelayClient, logs: tuple[Path, list[str]]) -> None:
    folder, expected = logs
    sources = sources_in(client, folder)
    place = place_of(client, sources, BEGAN + 1500)
    begin = expected.index(f"{clock(1500)} line 1500")
    first = MergedReader(client, sources, place)
    assert [line.text for line in first.lines(100)] == expected[begin : begin + 100]
    assert [line.text for line in MergedReader(client, sources, first.place).lines(100)] == expected[
        begin + 100 : begin + 200
    ]
    above = MergedReader(client, sources, place, backwards=True).lines(100)
    assert [line.text for line in reversed(above)] == expected[begin - 100 : begin]


def test_what_is_found_comes_in_the_order_of_time(client: RelayClient, logs: tuple[Path, list[str]]) -> None:
    folder, expected = logs
    sources, query = sources_in(client, folder), query_of(grep="more .*2$")
    assert query is not None
    found = list(search_merged(client, str(folder), sources, query))
    assert [hit.text for _, hit in found] == [text for text in expected if "more" in text and text.endswith("2")]
    assert all(at == BEGAN + int(hit.text.split()[1].split(".")[0]) for at, hit in found)  # that of the line above
    later = list(search_merged(client, str(folder), sources, query, BEGAN + 1500))
    assert [hit for _, hit in later] == [hit for at, hit in found if at >= BEGAN + 1500]


def test_a_log_without_times_is_spread_between_its_ends(client: RelayClient, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(f"{clock(second)} a{second}\n" for second in range(100)))
    (tmp_path / "b.log").write_text("".join(f"b{number}\n" for number in range(10)))
    for name in ("a.log", "b.log"):
        os.utime(tmp_path / name, (BEGAN + 100, BEGAN + 100))
    sources = sources_in(client, tmp_path)
    texts = [line.text.split()[-1] for line in MergedReader(client, sources, {}).lines(200)]
    assert texts[:3] == ["a0", "b0", "a1"]
    assert texts.index("b5") - texts.index("a50") == 1
    place = place_of(client, sources, BEGAN + 50)
    assert MergedReader(client, sources, place).lines(2)[1].text == "b5"


def test_a_log_that_grows_and_one_that_is_begun_anew(client: RelayClient, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"{clock(0)} one\n{clock(1)} ha")
    sources = sources_in(client, tmp_path)
    reader = MergedReader(client, sources, {}, whole_only=True)
    assert [line.text[-3:] for line in reader.lines(9)] == ["one"]
    log.write_text(f"{clock(0)} one\n{clock(1)} half\nno time\n")
    reader = MergedReader(client, sources, reader.place, whole_only=True)
    assert [line.text[-4:] for line in reader.lines(9)] == ["half", "time"]
    log.write_text("anew\n")
    assert [line.text for line in MergedReader(client, sources, reader.place).lines(9)] == ["anew"]


def test_lines_of_any_length_and_no_lines_at_all(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_merge, "LEAST_BYTES", 4096)
    monkeypatch.setattr(log_merge, "BUFFER_BYTES", 1)
    (tmp_path / "a.log").write_bytes(b"")
    (tmp_path / "b.log").write_bytes(b"x" * 10_000 + b"\n" + b"y" * 10_000)
    sources = sources_in(client, tmp_path)
    there = MergedReader(client, sources, {}).lines(99)
    assert sum(len(line.text) for line in there) == 20_000
    back = MergedReader(client, sources, end_of(sources), backwards=True).lines(99)
    assert sum(len(line.text) for line in back) == 20_000


def test_half_a_line_at_the_end_is_not_passed_and_nothing_is_read_again(client: RelayClient, tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_bytes(b"one\ntwo\n 50 %")
    sources = sources_in(client, tmp_path)
    reader = MergedReader(client, sources, {})
    assert [line.text for line in reader.lines(9)] == ["one", "two", " 50 %"]
    assert reader.place == end_of(sources)
    assert MergedReader(client, sources, reader.place).lines(9) == []
    log.write_bytes(b"one\ntwo\n 50 %|100 %\n")
    assert [line.text for line in MergedReader(client, sources, reader.place).lines(9)] == ["|100 %"]
