"""Whatever bytes a relay is sent, it answers in whole lines of JSON, and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltui.cluster.relay_program import relay_argv, relay_program
from rltui.onnode.relay import MAX_LINE
from rltui.onnode.relay_request import pack, unpack

OPERATIONS = ["hello", "read", "tail", "collect", "list", "alive", "run", "http", "put", "signal", "", "no-such"]

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
# no value here is a list of strings, a signal of a live process or a path that may be written: nothing is done
hostile_values = values.filter(lambda value: not isinstance(value, str) and not isinstance(value, list))
FIELDS = ("path", "root", "names", "argv", "processes", "url", "offset", "limit", "bytes", "since", "data")
requests = st.fixed_dictionaries(
    {"op": st.sampled_from(OPERATIONS) | values}, optional=dict.fromkeys(FIELDS, hostile_values)
)
tiny = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


class RawRelay:
    """A relay spoken to in bytes."""

    def __init__(self) -> None:
        argv = relay_argv(sys.executable)
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.count = 0
        self.send(relay_program())

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Send a request; returns its answer, and all answers that came before it."""
        assert self.process.stdout is not None
        self.count += 1
        name = f"request {self.count}"
        self.send(json.dumps({**request, "id": name}).encode() + b"\n")
        before: list[dict[str, Any]] = []
        while True:
            line = self.process.stdout.readline()
            assert line.endswith(b"\n"), "the relay ended"
            answer = json.loads(line)
            if answer["id"] == name:
                return answer, before
            before.append(answer)

    def answers(self) -> list[dict[str, Any]]:
        """Every answer so far that nobody has read."""
        return self.ask({"op": "hello"})[1]


@pytest.fixture(scope="module")
def relay() -> Iterator[RawRelay]:
    relay = RawRelay()
    yield relay
    _, said = relay.process.communicate(timeout=60)
    assert relay.process.returncode == 0
    assert said == b""


@tiny
@given(st.binary(max_size=300))
def test_random_lines_are_refused_one_by_one(relay: RawRelay, data: bytes) -> None:
    relay.send(data + b"\n")
    answers = relay.answers()
    assert len(answers) == data.count(b"\n") + 1
    assert all(answer["ok"] is False and answer["kind"] == "bad-request" for answer in answers)


@tiny
@given(requests)
def test_random_requests_are_answered_with_a_reason(relay: RawRelay, request: dict[str, Any]) -> None:
    answer, before = relay.ask(request)
    assert not before
    assert isinstance(answer["ok"], bool)
    assert answer["ok"] or (answer["kind"] and answer["error"])


@tiny
@given(values)
def test_ids_that_are_words_or_numbers_come_back(relay: RawRelay, name: Any) -> None:
    relay.send(json.dumps({"op": "hello", "id": name}).encode() + b"\n")
    [answer] = relay.answers()
    assert answer["ok"] is True
    assert answer["id"] == (name if isinstance(name, int | str) else None)


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 200_000, b"\0" * 1000, b'"\\ud800"'])
def test_lines_made_to_break_parsers_are_refused(relay: RawRelay, line: bytes) -> None:
    relay.send(line + b"\n")
    [answer] = relay.answers()
    assert (answer["ok"], answer["kind"]) == (False, "bad-request")


def test_a_line_over_the_cap_is_refused_and_skipped(relay: RawRelay) -> None:
    relay.send(b"x" * (MAX_LINE + 5_000_000) + b"\n")
    [answer] = relay.answers()
    assert (answer["ok"], answer["kind"]) == (False, "too-large")


@given(st.binary(max_size=2000), st.integers(0, 40))
def test_packing_keeps_every_byte(data: bytes, repeats: int) -> None:
    data = data * repeats
    assert unpack(*pack(data), limit=len(data)) == data
