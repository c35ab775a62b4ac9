"""Excerpts from many systems: each gets its diagnosis, alone and in the noise of others, however it is wrapped."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest
from excerpts import excerpts
from test_diagnose_rules import HAS

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.report import as_json, as_text
from rltui.diagnose.sources import stream_source, text_source

FAILING = excerpts("failing_logs.txt")
HEALTHY = [text for _, text in excerpts("healthy_logs.txt")]
EVERYTHING = [*FAILING, *HAS]

NOISE = """\
(TaskRunner pid=4711) INFO:2026-03-01 10:11:12,123:Total steps: 1200
INFO 10-25 13:08:43 [kv_cache_utils.py:864] GPU KV cache size: 412,320 tokens
(EngineCore_DP0 pid=9911) INFO 10-25 13:08:59 [core.py:218] init engine (profile, warmup model) took 16.02 seconds
2026-03-01 10:12:00,331 INFO trainer.py:88 -- step 17 reward 0.412 kl 0.0031 lr 1.0e-06
[2026-03-01 10:12:01,022] [INFO] [timer.py:199:stop] epoch=0/micro_step=17/global_step=17, MaxMemAllocated=61.3GB
node-3:1220:1288 [2] NCCL INFO Channel 03/0 : 10[2] -> 11[3] via P2P/CUMEM
wandb: Tracking run with wandb version 0.21.1
Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:02<00:02,  1.10s/it]
(raylet) [2026-03-01 10:10:00,111 I 1200 1200] (raylet) node_manager.cc:525: Sending Python GC request to 12 workers.
{'loss': 0.0021, 'grad_norm': 0.38, 'learning_rate': 1e-06, 'epoch': 0.02}
INFO:     10.0.3.7:51820 - "POST /v1/completions HTTP/1.1" 200 OK
step:12 - actor/pg_loss:0.003 - actor/grad_norm:0.21 - critic/rewards/mean:0.44 - timing_s/gen:34.1
error/tool_timeout_rate: 0.0 errors=0 failed=0 retries=0""".splitlines()


def noise(source: random.Random, lines: int) -> list[str]:
    def other_number(match: re.Match[str]) -> str:
        return str(source.randrange(10 ** len(match[0])))

    return [re.sub(r"\d+", other_number, source.choice(NOISE)) for _ in range(lines)]


def _digits(source: random.Random) -> Iterator[str]:
    while True:
        yield from f"{source.getrandbits(1024):0309}"[-300:]  # many at a time, which is much faster


def first_causes(log: str | bytes) -> list[str]:
    found = diagnose([text_source("log", log)])
    return [one.id for one in found if not one.secondary]


def each_line(form: str) -> Callable[[str], str]:
    return lambda text: "\n".join(form.replace("@", line) for line in text.split("\n"))


def numbered(form: str) -> Callable[[str], str]:
    """Begin each line with ``form``, the digits of which change from line to line."""
    digits = _digits(random.Random(form))

    def begun(line: str) -> str:
        return re.sub(r"\d", lambda _: next(digits), form).replace("@", line)

    return lambda text: "\n".join(map(begun, text.split("\n")))


def one_of(*forms: str) -> Callable[[str], str]:
    """Give each excerpt one of the forms, whichever its length chooses."""
    return lambda text: each_line(forms[len(text) % len(forms)])(text)


def each_record(record: Callable[[str], dict[str, object]]) -> Callable[[str], str]:
    """Write each line as the record of a collector or logger."""
    return lambda text: "\n".join(json.dumps(record(line)) for line in text.split("\n"))


WRAPPINGS: dict[str, Callable[[str], str]] = {
    "bare": str,
    "Ray": each_line("(WorkerDict pid=4242, ip=10.1.2.3) @"),
    "Ray in colour": each_line("\x1b[36m(Actor pid=9)\x1b[0m @"),
    "red": each_line("\x1b[31m@\x1b[0m"),
    "Ray and rank": each_line("(WorkerDict pid=4242) [rank5]: @"),
    "repeated": each_line("(WorkerDict pid=4242) @ [repeated 3x across cluster]"),
    "rank": each_line("[rank3]: @"),
    "torchrun": each_line("[default3]:@"),
    "srun --label": each_line("3: @"),
    "time": each_line("2026-03-01 10:12:00,331 @"),
    "ISO time": each_line("2026-03-01T10:12:00.331Z @"),
    "docker compose": each_line("vllm-1  | @"),
    "services": one_of(
        "rl-decode-6c8f9c4df6-vh88z vllm @",
        "[pod/rl-decode-6c8f9c4df6-vh88z/vllm] @",
        "2026-03-01T10:12:00.331123456Z stderr F @",
        "[2026-03-01, 10:12:00 UTC] {subprocess.py:93} INFO - @",
        "2026-03-01 10:12:00,331 - trainer.main - ERROR - @",
    ),
    "journald": each_line("Mar 01 10:12:00 gpu-7 trainer[812]: @"),
    "caret escapes": each_line("^[[36m(Actor pid=9)^[[0m @"),
    "rich box": each_line("│ @ │"),
    "docker's records": each_record(lambda line: {"log": f"{line}\n", "stream": "stderr", "time": "2026-03-01T10:12Z"}),
    "records of records": each_record(
        lambda line: {"log": json.dumps({"msg": line, "ts": 1.5}), "stream": "stderr", "time": "2026-03-01T10:12Z"}
    ),
    "one record": lambda text: json.dumps({"event": "ended", "level": "error", "exception": text}),
    "CRLF": each_line("@\r"),
    "progress bar": each_line(" 45%|####5     | 451/1000 [1:02:11<1:15:20,  8.23s/it]\r@"),
}


COLLECTORS = (
    # what was looked at while heads were learned
    "<11>1 2026-03-01T10:12:00.331Z gpu7 trainer 812 - - @",
    "gpu-node-07 | trainer | ERROR | @",
    # held out, and right at first sight
    "I0301 10:12:00.331123 4711 launcher.py:88] @",
    "2026/03/01 10:12:00 agent7/stderr> @",
)
"""What services put before each line of a job, in forms that no list has."""


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_the_cause_is_the_same_in_any_wrapping_and_noise(wrapping: str) -> None:
    source = random.Random(wrapping)
    wrong = []
    for cause, text in EVERYTHING:
        lines = [*noise(source, len(NOISE)), *WRAPPINGS[wrapping](text).split("\n"), *noise(source, len(NOISE))]
        found = first_causes("\n".join(lines))
        if found != [cause]:
            wrong.append((cause, found, text[:100]))
    assert not wrong


def test_the_cause_is_the_same_where_all_lines_of_a_log_begin_alike() -> None:
    source = random.Random(11)
    collect = [numbered(form) for form in COLLECTORS]
    logs = [*(([cause], text) for cause, text in EVERYTHING), *(([], text) for text in HEALTHY)]
    wrong = []
    for number, (causes, text) in enumerate(logs):
        lines = [*noise(source, len(NOISE)), text, *noise(source, len(NOISE))]
        found = first_causes(collect[number % len(collect)]("\n".join(lines)))
        if found != causes:
            wrong.append((causes, found, text[:100]))
    assert not wrong


def test_what_is_logged_as_a_warning_ends_nothing_behind_a_learned_head_either() -> None:
    lines = each_line("[10:12:00.331][worker 3][I] @")("\n".join(noise(random.Random(3), 60)))
    for level, causes in {"W": [], "WARNING": [], "E": ["program_failed"]}.items():
        assert first_causes(f"{lines}\n[10:12:01.007][worker 3][{level}] ValueError: bad sample 17") == causes


def test_the_cause_is_found_among_healthy_logs_of_other_systems() -> None:
    source = random.Random(7)
    wrong = []
    for cause, text in FAILING:
        others = [line for log in source.sample(HEALTHY, 5) for line in (*log.split("\n"), *noise(source, 20))]
        at = source.randrange(len(others))
        found = first_causes("\n".join([*others[:at], text, *others[at:], *noise(source, 20)]))
        if found != [cause]:
            wrong.append((cause, found, text[:100]))
    assert not wrong


def test_the_cause_is_found_in_40_000_lines() -> None:
    source = random.Random(3)
    before, after = "\n".join(noise(source, 30_000)), "\n".join(noise(source, 10_000))
    for cause, text in FAILING[:: len(FAILING) // 8]:
        assert first_causes(f"{before}\n{text}\n{after}") == [cause]


def test_packed_logs_are_the_same_logs() -> None:
    for cause, text in FAILING[::20]:
        packed = gzip.compress("\n".join([*NOISE, text, *NOISE]).encode())
        found = diagnose([stream_source("log.gz", BytesIO(packed))])
        assert [one.id for one in found if not one.secondary] == [cause]


@pytest.mark.parametrize("wrapping", ["bare", "Ray"])
def test_every_diagnosis_can_be_printed(wrapping: str) -> None:
    """With a node known from the prefix, remedies have more to say than without."""
    for cause, text in EVERYTHING:
        found = diagnose([text_source("log", WRAPPINGS[wrapping](text))])
        assert f"{cause}, confidence" in "\n".join(as_text(found))
        assert json.loads(json.dumps(as_json(found)))["diagnoses"][0]["id"] == found[0].id


def test_healthy_logs_have_no_cause() -> None:
    wrong = [(first_causes(text), text[:200]) for text in HEALTHY if first_causes(text)]
    assert not wrong


def test_mixed_healthy_logs_have_no_cause() -> None:
    source = random.Random(5)
    for _ in range(40):
        log = "\n".join(line for text in source.sample(HEALTHY, 12) for line in (*text.split("\n"), *noise(source, 20)))
        assert first_causes(log) == []
