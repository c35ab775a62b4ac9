"""Where a moment is in a log: found by the times of its lines, in all the forms in which loggers write them."""

from __future__ import annotations

import io
import struct
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rltui.cluster.relay_client import RelayClient
from rltui.errors import UsageError
from rltui.watch.log_times import Clock, moment, place_since, zone_of

ZONE = timezone(timedelta(hours=1))
NEWEST = datetime(2026, 1, 1, 10, 0, tzinfo=ZONE).timestamp()


@pytest.mark.parametrize(
    ("text", "before_newest_s"),
    [
        ("2026-01-01 09:59:00,250 INFO a", 59.75),
        ("[2026-01-01T09:58:00] a", 120),
        ("INFO 12-31 23:00:00 [core.py:12] a", 11 * 3600),
        ("(EngineCore pid=77) INFO 01-01 09:00:00 a", 3600),
        ("[rank3]:[E0101 09:00:00.5 ProcessGroupNCCL.cpp:629] a", 3599.5),
        ("2026-01-01T09:00:00Z a", 0),
        ("2026-01-01T11:00:00.000000000+02:00 a", 0),
        ("2026-01-01T04:00:00.000-0500 a", 0),
        ("09:59:59 step 3", 1),
        ("23:00:00 step 3", 11 * 3600),
        ("10:00:30 by a clock that runs ahead", -30),
        ("step 3 took 0.5 s", None),
        ("version 10:99:99 x", None),
        ("2026-13-41 10:00:00 x", None),
        ("x" * 60 + " 09:00:00", None),
    ],
)
def test_what_a_line_says_of_its_time(text: str, before_newest_s: float | None) -> None:
    clock = Clock(ZONE, NEWEST, NEWEST - 12 * 3600)
    expected = None if before_newest_s is None else NEWEST - before_newest_s
    assert clock.read(text) == expected
    if text[2] == ":":
        assert Clock(ZONE, NEWEST, NEWEST - 30 * 3600).read(text) is None  # of which of the two days is it?


@pytest.mark.parametrize("lines", [10, 60_000])
def test_the_first_line_since_a_moment_with_its_number(client: RelayClient, tmp_path: Path, lines: int) -> None:
    began = NEWEST - lines
    log = tmp_path / "out.log"
    with log.open("w") as stream:
        for number in range(lines):
            at = datetime.fromtimestamp(began + number, ZONE)
            stream.write(f"{at:%Y-%m-%d %H:%M:%S} step {number}\n  and more of it\n")
    clock = Clock(ZONE, NEWEST, began)
    for step in (0, 1, lines // 3, lines - 2, lines - 1):
        place = place_since(client, str(log), began + step, clock)
        assert log.read_bytes()[place.offset :].startswith(
            f"{datetime.fromtimestamp(began + step, ZONE):%Y-%m-%d %H:%M:%S} step {step}\n".encode()
        )
        assert place.line == 2 * step + 1
    assert place_since(client, str(log), NEWEST + 100, clock).offset == log.stat().st_size


def test_a_log_without_times_is_refused(client: RelayClient, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("step 1\nstep 2\n")
    with pytest.raises(UsageError, match="does not say when"):
        place_since(client, str(tmp_path / "out.log"), 0.0, Clock(ZONE, NEWEST, NEWEST))


def test_moments_and_zones(client: RelayClient) -> None:
    assert moment("10m", 1000.0, ZONE) == 400.0
    assert moment("2026-01-01T10:00", 0.0, ZONE) == NEWEST
    at = datetime.fromtimestamp(NEWEST, timezone.utc)
    for said in (at.isoformat(), f"{at:%Y-%m-%dT%H:%M:%S}Z", at.astimezone(timezone(timedelta(hours=5.5))).isoformat()):
        assert moment(said, 0.0, ZONE) == NEWEST
    with pytest.raises(UsageError, match="is no time"):
        moment("yesterday", 0.0, ZONE)
    here = datetime.fromtimestamp(time.time(), zone_of(client))
    assert here.utcoffset() == here.astimezone().utcoffset()


BERLIN = b"".join((header := struct.pack(">4sc15x6L", b"TZif", b"2", 0, 0, 0, 0, 1, 4), b"\0" * 6 + b"CET\0")) * 2
BERLIN += b"\nCET-1CEST,M3.5.0,M10.5.0/3\n"


def cluster_in(offsets: str) -> Any:
    """A cluster whose machine is in Berlin and whose ``date`` says ``offsets``, of now and of half a year ago."""
    said = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(out=offsets))
    return SimpleNamespace(**vars(said), read=lambda *_: SimpleNamespace(data=BERLIN))


def test_a_log_that_goes_over_a_change_of_the_clocks_is_read_with_both_offsets() -> None:
    now = time.time()
    rules = ZoneInfo.from_file(io.BytesIO(BERLIN))
    said = [f"{datetime.fromtimestamp(at, rules):%z}" for at in (now, now - 182 * 86400.0)]
    zone = zone_of(cluster_in("\n".join(said)))
    change = datetime(2026, 10, 25, 1, tzinfo=timezone.utc).timestamp()
    clock = Clock(zone, newest=change + 7200, oldest=change - 86400)
    assert clock.read("2026-10-25 01:30:00 before") == change - 5400
    assert clock.read("2026-10-25 03:30:00 after") == change + 5400
    assert moment("2026-07-01T12:00", 0.0, zone) == datetime(2026, 7, 1, 10, tzinfo=timezone.utc).timestamp()
    assert zone_of(cluster_in("+0000\n+0000")) == timezone.utc, "the account's own TZ counts, not the machine's"
    assert zone_of(cluster_in(f"{said[0]}\ndate: illegal option")).utcoffset(None) is not None
