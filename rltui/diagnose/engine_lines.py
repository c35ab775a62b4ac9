"""What engines say of themselves in their logs: requests that run and wait, use of the KV cache, tokens a second.

The lines are vLLM's (``vllm/v1/metrics/loggers.py``) and SGLang's (``scheduler_metrics_mixin.py``), which their engines
write every few seconds whatever trainer they serve; engines are told apart by the process that wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rltui.diagnose.recent import EngineCounters

_VLLM = re.compile(
    r"(?:Engine (?P<number>\d+): )?Avg prompt throughput: [\d.]+ tokens/s, "
    r"Avg generation throughput: (?P<speed>\d+(?:\.\d+)?) tokens/s, Running: (?P<running>\d+) reqs?, "
    r"Waiting: (?P<waiting>\d+) reqs?, (?:Swapped: \d+ reqs?, )?GPU KV cache usage: (?P<kv>\d+(?:\.\d+)?)%"
)
_SGLANG = re.compile(
    r"Decode batch.{0,40}? #running-req: (?P<running>\d+),.{0,80}? token usage: (?P<kv>\d+(?:\.\d+)?),"
    r".{0,200}?gen throughput \(token/s\): (?P<speed>\d+(?:\.\d+)?), #queue-req: (?P<waiting>\d+)"
)
_PROCESS = re.compile(r"\((?P<name>[\w. -]{1,40}?),? ?pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\d.]+))?\)")
_RANKS = re.compile(r"\b((?:DP|TP)\d+)\b")
_QUIET = re.compile(r"tokens/s|token/s")


def engine_counters(lines: Iterable[str]) -> tuple[EngineCounters, ...]:
    """The newest word of each engine in ``lines``, in the order in which engines first spoke."""
    newest: dict[str, EngineCounters] = {}
    for line in lines:
        if not _QUIET.search(line):
            continue
        match, is_vllm = _VLLM.search(line), True
        if match is None:
            match, is_vllm = _SGLANG.search(line), False
        if match is not None:
            name = _name(line, match["number"] if is_vllm else None)
            newest[name] = EngineCounters(
                name=name,
                running=float(match["running"]),
                waiting=float(match["waiting"]),
                kv_share=float(match["kv"]) / (100.0 if is_vllm else 1.0),
                tokens_per_second=float(match["speed"]),
            )
    return tuple(newest.values())


def _name(line: str, number: str | None) -> str:
    """The engine by the process that wrote or passed on its line, and by its number or rank."""
    processes: Sequence[re.Match[str]] = list(_PROCESS.finditer(line))
    words = [f"{each['name']} pid {each['pid']}" + (f" on {each['ip']}" if each["ip"] else "") for each in processes]
    rank = _RANKS.search(line)
    own = [f"engine {number}"] if number is not None else [rank[1]] if rank is not None else []
    return ", ".join([*words[:1], *own]) or "the engine"
