"""Trying part after part, each in a process of its own with a deadline: what crashes or hangs costs one part."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rltui.layout.load import load_layout
from rltui.layout.schema import Layout
from rltui.layout.selftest import Part
from rltui.onnode import rundir
from trainers.selftest.found import FOLDER, Found, Row, SkippedError, last_words, read_rows
from trainers.stages import Stages
from trainers.stopping import EXIT_CODE, Stop, StopRequestedError

MODULES = {
    "versions": "node_parts", "clock": "node_parts", "disk": "node_parts",
    "card": "card_parts", "all-reduce": "link_parts", "weights": "link_parts", "packing": "card_parts",
    "plain-loop": "plain_loop", "agents": "role_parts", "judge": "role_parts", "router-replay": "role_parts",
    "fp8": "role_parts",
}  # fmt: skip
"""Where a part is; the others are runs of the trainer."""

LEAST_S = 5.0
"""Of the time of all parts, without which none is begun."""
POLL_S = 0.05
THOROUGH_PATIENCE = 3
"""Times a part's deadline, where sizes are larger."""

log = logging.getLogger("trainers")


def try_part(found: Found) -> None:
    """Try the part of ``found`` in this process; whatever goes wrong becomes a row."""
    name = found.part.name
    try:
        function_of(name)(found)
    except SkippedError as error:
        found.skipped("", str(error))
    except Exception as error:  # the outermost edge of the part's process
        log.exception("the part %s failed", name)
        found.failed("", last_words(error))


def function_of(part: str) -> Callable[[Found], None]:
    """The function that tries a part, by the part's name."""
    module = importlib.import_module(f"trainers.selftest.{MODULES.get(part, 'run_parts')}")
    found: Callable[[Found], None] = getattr(module, part.replace("-", "_"))
    return found


class Program:
    """The self-test of an attempt.

    Args:
        attempt: The attempt's directory.
        layout: Its layout.
        stop: The request to stop.
    """

    def __init__(self, attempt: Path, layout: Layout, stop: Stop) -> None:
        assert layout.selftest is not None, "only the layout of a self-test has parts"
        self._attempt, self._layout, self._stop = attempt, layout, stop
        self._parts, self._until = layout.selftest.wanted, time.monotonic() + layout.selftest.seconds
        self._patience = THOROUGH_PATIENCE if layout.selftest.thorough else 1
        self._stages = Stages(str(attempt), len(self._parts))
        self._rows: list[Row] = []

    def run(self) -> int:
        """Try all parts; returns 0 where none failed, else 1."""
        (self._attempt / FOLDER).mkdir(mode=0o700, exist_ok=True)
        for number, part in enumerate(self._parts, 1):
            self._stages.show("training", f"{part.name}: {part.summary}", step=number - 1)
            began = time.monotonic()
            rows = self._try(part)
            self._note(part, number, rows, time.monotonic() - began)
        self._stages.flush()
        failed = list(dict.fromkeys(row.part for row in self._rows if row.verdict == "failed"))
        if failed:
            words = f"{len(failed)} of {len(self._parts)} parts failed: {', '.join(failed)}"
            rundir.log_event(str(self._attempt), "error", words)
        return 1 if failed else 0

    def _try(self, part: Part) -> list[Row]:
        limit_s = min(part.deadline_s * self._patience, self._until - time.monotonic())
        if limit_s < LEAST_S:
            return [Row(part.name, "", "skipped", "the time of all parts was over; --only tries it alone")]
        words = [sys.executable, "-m", "trainers.selftest", "--attempt", str(self._attempt), "--part", part.name]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + limit_s
        try:
            while process.poll() is None and time.monotonic() < deadline:
                self._stop.check()
                time.sleep(POLL_S)
            code = process.poll()
        finally:
            _end(process)
        rows = read_rows(self._attempt, part.name)
        if code is None:
            rows.append(Row(part.name, "", "failed", f"it did not end within {limit_s:.0f} s", part.remedy))
        elif code:
            rows.append(Row(part.name, "", "failed", f"its process ended with {_ending(code)}", part.remedy))
        return rows or [Row(part.name, "", "failed", "it said nothing", part.remedy)]

    def _note(self, part: Part, number: int, rows: Sequence[Row], seconds: float) -> None:
        self._rows += rows
        for row in rows:
            text = f"{row.part} {row.what}".rstrip() + f": {row.verdict}, {row.figure}"
            rundir.log_event(str(self._attempt), "selftest", text)
            print(text, flush=True)
        hardware = self._layout.hardware
        document = {
            "schema": rundir.SCHEMA,
            "gpu": hardware.gpu,
            "nodes": hardware.nodes,
            "gpus_per_node": hardware.gpus_per_node,
            "model": self._layout.roles.learner.model,
            "measured_at": time.time(),
            "parts": [one.name for one in self._parts[:number]],
            "rows": [asdict(row) for row in self._rows],
        }
        rundir.write_json(str(self._attempt / rundir.SELFTEST), document)
        line = {"step": number, "time": time.time(), "time/total": seconds}
        rundir.append_line(str(self._attempt / rundir.METRICS), line)
        self._stages.show("training", f"{part.name} took {seconds:.0f} s", step=number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part with all that it started here; what it started by Ray ends with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(code: int) -> str:
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns 0 where no part failed, 1 where one did, 143 where a signal ended it."""
    parser = argparse.ArgumentParser(prog="python -m trainers.selftest", description=__doc__)
    parser.add_argument("--attempt", type=Path, required=True, metavar="DIR", help="run the attempt in DIR")
    parser.add_argument("--part", default="", metavar="NAME", help="try this part in this process")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stdout)
    attempt = options.attempt.absolute()
    layout = load_layout(attempt / rundir.LAYOUT).layout
    if options.part:
        assert layout.selftest is not None
        part = next(one for one in layout.selftest.wanted if one.name == options.part)
        try_part(Found(attempt, layout, part))
        return 0
    stop = Stop()
    stop.install()
    try:
        return Program(attempt, layout, stop).run()
    except StopRequestedError:
        return EXIT_CODE
