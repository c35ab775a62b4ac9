"""Lines are freed of prefixes and attributed; tracebacks become frames; sources of any kind become text."""

from __future__ import annotations

import gzip
import io

import pytest

from rltui.diagnose.context import Context, LineBudget
from rltui.diagnose.frames import frames_of
from rltui.diagnose.lines import clean
from rltui.diagnose.sources import decoded, stream_source, text_source
from rltui.watch.text import LINE_LIMIT

ERROR = "ValueError: No available memory for the cache blocks."


@pytest.mark.parametrize(
    ("raw", "attributes"),
    [
        (f"[rank3]: {ERROR}", {"rank": "3"}),
        (f"[default1]:{ERROR}", {"rank": "1"}),
        (f"[1,7]<stdout>:{ERROR}", {"rank": "7"}),
        (f"12: {ERROR}", {"rank": "12"}),
        (f"(TaskRunner pid=41) {ERROR}", {"actor": "TaskRunner", "pid": "41"}),
        (f"(WorkerDict pid=41, ip=10.0.0.7) {ERROR}", {"pid": "41", "node": "10.0.0.7"}),
        (f"(raylet, ip=10.0.0.7) {ERROR}", {"actor": "raylet", "node": "10.0.0.7"}),
        (f"(EngineCore_DP0 pid=22) ERROR 10-25 13:08:43 [core.py:708] {ERROR}", {"pid": "22", "level": "ERROR"}),
        (f"vllm-1  | ERROR 10-25 13:08:43 core.py:708] {ERROR}", {"time": "10-25 13:08:43"}),
        (f"2026-06-28T06:11:52.685300953Z (LLMRayActor pid=20) {ERROR}", {"actor": "LLMRayActor"}),
        (f"2024-04-27 10:13:05 | ERROR | stderr | {ERROR}", {"level": "ERROR"}),
        (f"│ {ERROR}      │", {}),
        (f"\x1b[36m(pid=7, ip=1.2.3.4)\x1b[0m {ERROR}", {}),
        (f"^[[31m{ERROR}^[[0m", {}),
        (f"#033[2m#033[33m(raylet)#033[0m {ERROR}", {"actor": "raylet"}),
        (f"{ERROR} [repeated 26x across cluster]", {"repeated": 26}),
        (f"{ERROR}\r", {}),
    ],
)
def test_prefixes_are_stripped_and_kept(raw: str, attributes: dict[str, object]) -> None:
    line = clean(raw.encode(), 1)
    if raw.startswith("\x1b[36m(pid"):  # an actor without a name: the line is clean, the prefix stays
        assert ERROR in line.text
    else:
        assert line.text.strip() == ERROR
    assert {name: getattr(line, name) for name in attributes} == attributes


@pytest.mark.parametrize(("prefix", "node"), [("worker-12", "worker-12"), ("step-7", ""), ("gcc-11", "")])
def test_a_name_with_a_number_is_a_node_unless_it_counts_or_is_a_program(prefix: str, node: str) -> None:
    assert clean(f"{prefix}: {ERROR}".encode(), 1).node == node


def test_code_keeps_its_indentation() -> None:
    assert clean(b"[rank0]:     self.optimizer.step()", 1).text.endswith("    self.optimizer.step()")


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00broken", b"\x9b31mred\x1b]0;title\x07", "‮evil".encode(), b"\0" * 50])
def test_no_line_holds_control_characters(raw: bytes) -> None:
    assert clean(raw, 1).text.isprintable()


def test_a_line_is_cut() -> None:
    assert len(clean(b"x" * 10**6, 1).text) == LINE_LIMIT


def spot_at_end(text: str) -> Context:
    """Return the last line of ``text`` in its surroundings."""
    raw = text.encode()
    start = raw.rfind(b"\n") + 1
    return Context(clean(raw[start:], raw.count(b"\n") + 1), raw, start, len(raw), LineBudget(1000))


def test_frames_of_a_plain_traceback() -> None:
    text = 'Traceback (most recent call last):\n  File "/a/b.py", line 3, in f\n    g(x)\n    ^^^^\nE: boom'
    (frame,) = frames_of(spot_at_end(text))
    assert (frame.path, frame.function, frame.code) == ("/a/b.py", "f", "g(x)")


def test_frames_of_a_rich_traceback_whose_path_is_wrapped() -> None:
    text = (
        "│ /opt/lib/deepspeed/runtime/zero/partitioned_param_coordin │\n"
        "│ ator.py:338 in fetch_sub_module                           │\n"
        "│   335 │   if x:                                           │\n"
        "CUDA out of memory."
    )
    (frame,) = frames_of(spot_at_end(text))
    assert frame.path == "/opt/lib/deepspeed/runtime/zero/partitioned_param_coordinator.py"
    assert frame.function == "fetch_sub_module"


def test_frames_of_another_process_are_not_taken() -> None:
    text = '[rank1]:   File "/a/other.py", line 3, in f\n[rank0]:   File "/a/mine.py", line 3, in f\n[rank0]: E: boom'
    assert [frame.path for frame in frames_of(spot_at_end(text))] == ["/a/mine.py"]


def test_frames_far_above_belong_to_something_else() -> None:
    text = '  File "/a/b.py", line 3, in f\n' + "    indented output\n" * 40 + "E: boom"
    assert frames_of(spot_at_end(text)) == ()


def everything(blocks: object) -> bytes:
    """Return what the decoder makes of ``blocks``."""
    return b"".join(decoded(blocks))  # type: ignore[arg-type]


def test_gzip_is_unpacked_by_its_content() -> None:
    packed = gzip.compress(b"one\n" * 5) + gzip.compress(b"two\n")
    assert everything([packed[:7], packed[7:]]) == b"one\n" * 5 + b"two\n"
    assert everything([packed[: len(packed) - 9]]).startswith(b"one\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_encodings_become_utf_8(encoding: str) -> None:
    data = (ERROR * 3).encode(encoding)
    assert ERROR in everything([data[:50], data[50:]]).decode()


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b", b"\x1f\x8bnot gzip at all", b"\xff\xfe"])
def test_broken_input_is_no_crash(data: bytes) -> None:
    everything([data])


def test_names_of_sources_are_harmless() -> None:
    assert stream_source("a\x1b[31m.log", io.BytesIO(b"")).name == "a.log"
    assert text_source("b\n.log", "x").name == "b .log"
