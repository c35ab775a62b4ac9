"""The scan: the same answer however the input is cut, right line numbers, bounded memory and time."""

from __future__ import annotations

import io
import random
import time
import tracemalloc

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.matches import MOST_MATCHES
from rltui.diagnose.scan import STEP_BYTES, Scanner
from rltui.diagnose.sources import Source, stream_source, text_source

ERROR = "ValueError: No available memory for the cache blocks."
NOISE = "INFO 10-25 13:08:43 [x.py:1] step {step} took {time:.3f} s\n"


def noise(lines: int) -> str:
    """Return a log without trouble."""
    source = random.Random(1)
    return "".join(NOISE.format(step=step, time=source.random()) for step in range(lines))


def evidence_lines(source: Source) -> list[int]:
    """Return the line numbers of the first diagnosis' evidence."""
    return [one.line for one in diagnose([source])[0].evidence]


@pytest.mark.parametrize("block", [1 << 10, 70_001, STEP_BYTES, 1 << 23])
def test_line_numbers_do_not_depend_on_how_the_input_is_cut(block: int) -> None:
    text = (noise(60_000) + ERROR + "\n" + noise(60_000)).encode()
    source = Source("log", (text[start : start + block] for start in range(0, len(text), block)))
    assert evidence_lines(source) == [60_001]


def test_the_last_line_needs_no_end() -> None:
    assert evidence_lines(text_source("log", noise(3) + ERROR)) == [4]


@pytest.mark.parametrize("hole", [100, 5000, STEP_BYTES])
def test_a_log_that_was_cut_under_its_writer_begins_with_a_hole(hole: int) -> None:
    stream = io.BytesIO(b"\0" * hole + f"step 7\n{ERROR}\n".encode())
    assert evidence_lines(stream_source("log", stream)) == [2]


def test_windows_line_ends_and_progress_bars() -> None:
    bars = "".join(f"\r {percent}%|##   | {percent}/100" for percent in range(100))
    assert evidence_lines(text_source("log", f"a\r\n{bars}\r{ERROR}\r\nb\r\n")) == [2]


def test_an_error_in_a_line_without_end_is_found() -> None:
    text = b"x" * (3 * STEP_BYTES) + b" " + ERROR.encode() + b" " + b"y" * (2 * STEP_BYTES)
    assert evidence_lines(Source("log", [text])) == [1]


def test_of_a_long_line_the_part_that_tells_is_shown() -> None:
    text = diagnose([text_source("log", f"{'state ' * 500}{ERROR}")])[0].evidence[0].text
    assert text.startswith("…")
    assert 0 < text.find(ERROR[-20:]) < 300


def test_frames_before_the_edge_of_a_step_are_seen() -> None:
    oom = (
        'Traceback (most recent call last):\n  File "/v/torch/optim/adamw.py", line 220, in step\n    adamw(\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    for shift in range(0, 400, 37):
        padding = "p" * (STEP_BYTES - 200 + shift) + "\n"
        assert diagnose([text_source("log", padding + oom + noise(2000))])[0].id == "cuda_oom_optimizer"


def test_matches_are_bounded_and_the_first_and_last_are_kept() -> None:
    scanner = Scanner()
    scanner.scan(text_source("log", f"{ERROR}\n" * 5000))
    matches = scanner.matches.by_cause["engine_kv_no_blocks"]
    assert len(matches) == MOST_MATCHES
    assert (matches[0].order, matches[-1].order) == (1, 5000)


def test_equal_words_with_other_numbers_are_judged_anew() -> None:
    line = "INFO llm_engine.py:275] # GPU blocks: {}, # CPU blocks: 2048\n"
    log = line.format(1952) * 3 + line.format("0   ") + line.format(1111)
    assert evidence_lines(text_source("log", log)) == [4]


def test_memory_stays_bounded() -> None:
    def blocks() -> object:
        source = random.Random(3)
        for _ in range(60):
            yield (" ".join(source.choices("abcdefgh", k=20)) + "\n").encode() * 25_000

    tracemalloc.start()
    diagnose([Source("log", blocks())])  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80 << 20


def test_a_million_tracebacks_do_not_take_for_ever() -> None:
    frame = '  File "/v/torch/nn/m.py", line 3, in forward\n    x = self.up(x)\n'
    oom = f"{frame * 60}RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    log = oom * 2000
    began = time.process_time()
    assert diagnose([text_source("log", log)])[0].id == "cuda_oom_fwd_bwd"
    assert time.process_time() - began < 30


def test_sources_are_told_apart() -> None:
    found = diagnose([text_source("a.log", noise(5)), text_source("b.log", f"{noise(2)}{ERROR}\n")])
    assert [(one.file, one.line) for one in found[0].evidence] == [("b.log", 3)]
