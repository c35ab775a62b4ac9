"""Whatever a log holds: no crash, no raw control character out, and time that grows with its size."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltui.diagnose import report
from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.index import CAUSES, RULES, Rule
from rltui.diagnose.lines import clean
from rltui.diagnose.scan import PIECE_BYTES, STEP_BYTES, words_of
from rltui.diagnose.sources import Source, decoded
from rltui.diagnose.wording import anchor_words, compiled, key_words

LINES = int(os.environ.get("FUZZ_LINES", "50000"))
"""The full size is a million; CI takes fewer."""

HOSTILE = (
    "\x1b]0;title\x07",
    "\x1b[31m",
    "\x9b31m",
    "\x1bP+q\x1b\\",
    "[@click=app.bell]x[/]",
    "\u202eevil",
    "\r",
    "\0",
    "\ufeff",
    "^[[2J",
    "(" * 300,
    "[rank" * 50,
    "│" * 200,
    "{'GPU': " * 40,
    "9" * 400,
    "é" * 300,
    "{node}",
    "%s%n",
    "$(reboot)",
)
WORDS = sorted({word for rule in RULES for word in (*key_words(rule.wording), *anchor_words(rule.wording))})
ANCHORS = sorted({rule.wording.anchor for rule in RULES})


def hostile_line(source: random.Random) -> bytes:
    """Return a line of words that rules look for, tricks, numbers and raw bytes."""
    parts = [
        source.choice(
            (
                lambda: source.choice(WORDS),
                lambda: source.choice(ANCHORS),
                lambda: source.choice(HOSTILE),
                lambda: str(source.randrange(10 ** source.randrange(1, 12))),
                lambda: source.randbytes(source.randrange(12)).decode("latin-1"),
                lambda: source.choice(("nan", "loss:", "grad_norm=", 'File "/x.py", line 3, in f', "Traceback", "\t")),
            )
        )()
        for _ in range(source.randrange(1, 14))
    ]
    return " ".join(parts).encode("utf-8" if source.random() < 0.9 else "utf-16", "replace")


def hostile_blocks(lines: int, seed: int) -> Iterator[bytes]:
    """Yield ``lines`` hostile lines in blocks of any size."""
    source = random.Random(seed)
    for start in range(0, lines, 1000):
        count = min(1000, lines - start)
        yield b"".join(hostile_line(source) + source.choice((b"\n", b"\r\n", b"\n\n")) for _ in range(count))


def assert_harmless(source: Source) -> None:
    """Diagnose ``source`` and check that what comes out is printable and of the promised form."""
    found = diagnose([source])
    for line in report.as_text(found):
        assert line.isprintable(), repr(line)
    for diagnosis in report.as_json(found)["diagnoses"]:
        assert diagnosis["id"] in CAUSES
        assert 0 < diagnosis["confidence"] <= 1
        assert all(one["text"].isprintable() and one["line"] >= 1 for one in diagnosis["evidence"])


def test_hostile_lines_do_no_harm_in_bounded_time() -> None:
    began = time.process_time()
    assert_harmless(Source("log", hostile_blocks(LINES, seed=7)))
    assert time.process_time() - began < 60 + LINES / 5000


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_one_endless_line_does_no_harm(end: bytes) -> None:
    source = random.Random(5)
    line = b" ".join(hostile_line(source).replace(b"\n", b" ") for _ in range(10_000))
    assert len(line) > 2 * STEP_BYTES
    assert_harmless(Source("log", [line + end]))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000))
def test_any_bytes_do_no_harm(data: bytes) -> None:
    assert_harmless(Source("log", decoded([data[:100], data[100:]])))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=500))
def test_a_cleaned_line_is_printable(text: str) -> None:
    line = clean(text.encode("utf-8", "surrogatepass"), 1)
    assert line.text.isprintable()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(ANCHORS), min_size=1, max_size=30), st.integers(1, 5000))
def test_the_answer_does_not_depend_on_blocks(anchors: list[str], size: int) -> None:
    data = "\n".join(f"ValueError: {anchor} 7" for anchor in anchors).encode()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert diagnose([Source("log", pieces)]) == diagnose([Source("log", [data])])


FILLERS = (" ", "0", "a", "{", "(", ":", "= ", "a ", "0 ", "error ")
SLOWEST_S = 0.5
"""Of one pattern on one piece of a line that was made to hurt; a quadratic one takes longer."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.cause}:{rule.wording.anchor}")
def test_no_pattern_takes_for_ever(rule: Rule) -> None:
    for filler in (*FILLERS, f"{rule.wording.anchor} "):
        text = f"{rule.wording.anchor} {filler * (PIECE_BYTES // len(filler))} {rule.wording.anchor}"
        began = time.process_time()
        compiled(rule.wording.pattern).search(text)
        compiled(rule.wording.unless).search(text)
        assert time.process_time() - began < SLOWEST_S, filler


GAPS = re.compile(r"(?<!\\)\.(?:\{0,\d+\}\??|\*\??|\+)")
LOOKS = re.compile(r"\(\?<?[!=](?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\)")
"""A look ahead or behind, which may hold a group: it asks of a text what its gaps, cut here, would have held."""
OPEN_ENDED = (
    "out of memory", "libnccl", "libnccl.so", "libtorch", "on the hub", "killed due to memory pressure", "assoc", "qos",
)  # fmt: skip
"""Anchors whose patterns leave open where a word ends, which the systems do not."""

CLOSED = [
    rule
    for rule in RULES
    if rule.wording.pattern and rule.wording.anchor not in OPEN_ENDED and len(rule.wording.words) < 50
]


@pytest.mark.parametrize("rule", CLOSED, ids=lambda rule: f"{rule.cause}:{rule.wording.anchor}")
def test_the_scan_misses_no_line_that_a_pattern_matches(rule: Rule) -> None:
    """A line is looked at only if it holds a wording's words; so every text of a pattern has to hold them."""
    letters = st.characters(min_codepoint=32, max_codepoint=126)
    texts = st.from_regex(GAPS.sub(" ", LOOKS.sub(" ", rule.wording.pattern)), fullmatch=True, alphabet=letters)

    @settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(texts)
    def check(text: str) -> None:
        lowered = text.lower()
        words = {word.decode() for word in words_of(re.sub("[^a-z]", " ", lowered).encode())}
        if rule.wording.anchor in lowered:
            assert words & set(key_words(rule.wording))
            assert anchor_words(rule.wording) <= words

    check()


GARBLED = Path(__file__).parents[1] / "diagnose" / "failing_logs.txt"
DIGITS = ("", ".", "..", "-", "9" * 30, "²", "٣", " ", "1.5.5")


def test_real_failures_that_several_ranks_wrote_into_each_other_do_no_harm() -> None:
    """Ranks that share a file tear each other's numbers and times apart; what is read as a number may be none."""
    source = random.Random(3)
    text = GARBLED.read_text(encoding="utf-8")
    for _ in range(6):
        torn = re.sub(r"\d", lambda digit: source.choice(DIGITS) if source.random() < 0.08 else digit[0], text)
        assert_harmless(Source("log", [torn.encode()]))
    numbers = "CUDA out of memory. Tried to allocate 512.031.75 MiB. GPU 0 has a total capacity of 79.3.1 GiB"
    times = "2018-05-04T10:00:00 step 1\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2018-05-04T77:06:42 ***"
    for line in (f"torch.OutOfMemoryError: {numbers} of which 1.2.3 GiB is free", times):
        assert_harmless(Source("log", [line.encode()]))
