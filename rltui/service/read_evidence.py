"""The newest evidence of an attempt and torch's flight records of it, read through the relay."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from rltui.cluster.relay_client import RelayClient, pieces
from rltui.cluster.relay_types import RelayError
from rltui.diagnose.flight_record import lines_of
from rltui.diagnose.stacks import Observed
from rltui.diagnose.stuck import (
    Evidence,
    halted_at_the_end,
    halted_now,
    idle_roles,
    is_overdue,
    stood_still,
    stuck_words,
)
from rltui.errors import RltuiError
from rltui.onnode import evidence, flight_recorder, progress, rundir
from rltui.onnode.lost_nodes import host_of, is_sampler_file
from rltui.watch.lines import decode, parse_object, tail_of
from rltui.watch.silence import roles_told
from rltui.watch.text import plain

if TYPE_CHECKING:
    from rltui.diagnose.recent import RunPicture


ANSWER_BYTES = 8 << 20
EVENTS_BYTES = 4 << 20
MOST_NODES = 256
ANSWER_S = 20.0
"""How long whoever asks why a run stands still waits for its nodes."""
POLL_S = 0.5


class Answer(Struct, frozen=True):
    """What one node answered when it was asked what its processes are doing."""

    host: str
    at: float
    processes: tuple[Observed, ...] = ()


def asked_nodes(client: RelayClient, attempt: str, picture: RunPicture) -> bool:
    """Ask the nodes of an attempt that stands still what its processes do; whether there was anybody to ask."""
    is_still = is_overdue(picture, picture.now, progress.scale()) and not client.owner_of(attempt)
    if not is_still or not _is_sampled(client, attempt):
        return False
    ask_nodes(client, attempt, "it stands still", ANSWER_S)
    return True


def stuck_lines(client: RelayClient, attempt: str, picture: RunPicture) -> list[str]:
    """Who holds up the attempt, in lines for a diagnosis; none where no evidence was taken.

    Args:
        client: The cluster.
        attempt: The attempt's directory.
        picture: What is known of it besides.
    """
    found = stuck_words(read_evidence(client, attempt), picture, progress.scale())
    return [plain(line) for line in found or _halted_lines(client, attempt, picture)]


def _halted_lines(client: RelayClient, attempt: str, picture: RunPicture) -> list[str]:
    """Who is stopped, by the newest samples, or was to the end: known where there was no standstill yet."""
    found = halted_now(picture) or halted_at_the_end(_events(client, attempt, "process", rundir.RESTART), picture)
    return [f"stuck: {line}" for line in idle_roles(_named(found, _roles(client, attempt)[1]))] if found else []


def _named(found: Evidence, roles: dict[tuple[str, int], str]) -> Evidence:
    named = (structs.replace(one, role=roles.get((one.host, one.pid), "")) for one in found.processes)
    return structs.replace(found, processes=tuple(named))


def sampled(client: RelayClient, attempt: str) -> dict[str, float]:
    """When the sampler of each node wrote last, epoch seconds of the disk, by the node's name."""
    return {host_of(one.name): one.mtime for one in client.list(attempt) if is_sampler_file(one.name)}


def _is_sampled(client: RelayClient, attempt: str) -> bool:
    """Whether any node's sampler speaks, which is who answers."""
    newest = max(sampled(client, attempt).values(), default=0.0)
    return client.disk_time(attempt) - newest < evidence.SPEAKING_S


def ask_nodes(client: RelayClient, attempt: str, reason: str, deadline_s: float) -> tuple[str, ...]:
    """Ask the nodes what their processes are doing, and wait for it; returns those that did not answer in time."""
    name = _request(client, attempt, evidence.request(reason))
    deadline = time.monotonic() + deadline_s
    while silent := _missing(client, attempt, name):
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    return tuple(silent)


def _request(client: RelayClient, attempt: str, wanted: dict[str, Any]) -> str:
    client.run(["mkdir", "-p", "-m", "700", f"{attempt}/{rundir.EVIDENCE}"], timeout_s=10.0)
    client.put(f"{attempt}/{rundir.EVIDENCE}/{rundir.EVIDENCE_REQUEST}", json.dumps(wanted).encode())
    return str(wanted["id"])


def look_at_process(client: RelayClient, attempt: str, host: str, pid: int, deadline_s: float = ANSWER_S) -> Observed:
    """What one process of a live attempt is doing, by the sampler of its node ``host``.

    Raises:
        RltuiError: Nobody may or can look at it, with the reason.
    """
    if owner := client.owner_of(attempt):
        raise RltuiError(f"The process is {owner}'s: only {owner} may look into it.")
    _require_sampler(client, attempt, host)
    name = _request(client, attempt, evidence.request("a look at one process", host, pid))
    path = f"{attempt}/{rundir.EVIDENCE}/{evidence.answer_name(name, host, pid)}"
    deadline = time.monotonic() + deadline_s
    while (answer := parse_answer(tail_of(client, path, ANSWER_BYTES))) is None:
        if time.monotonic() > deadline:
            hint = "A node that runs a sampler of an older rltui answers for all its processes only: `rltui bundle`."
            raise RltuiError(f"The sampler of {host} did not answer within {deadline_s:.0f} s.", hint)
        time.sleep(POLL_S)
    if not answer.processes:
        raise RltuiError(f"Process {pid} of {host} is not there any more, or is none of this run's.")
    return structs.replace(answer.processes[0], host=host)


def _require_sampler(client: RelayClient, attempt: str, host: str) -> None:
    """Refuse where nothing of rltui runs on the node that could look."""
    if client.disk_time(attempt) - sampled(client, attempt).get(host, 0.0) >= evidence.SPEAKING_S:
        run_id = rundir.run_id_of(attempt)
        hint = f"Of an adopted run `rltui gpus {run_id} --sample 60` starts samplers."
        raise RltuiError(f"No sampler speaks on {host}, so nothing there can look into a process.", hint)


def _missing(client: RelayClient, attempt: str, name: str) -> list[str]:
    """Nodes whose samplers speak and that have not answered yet."""
    spoke = sampled(client, attempt)
    newest = max(spoke.values(), default=0.0)
    hosts = [host for host, at in spoke.items() if newest - at < evidence.SPEAKING_S]
    there = {entry.name for entry in client.list(f"{attempt}/{rundir.EVIDENCE}")}
    return [host for host in sorted(hosts) if f"{name}-{host}.json" not in there]


def read_evidence(client: RelayClient, attempt: str) -> Evidence | None:
    """What the nodes answered to the newest request that any of them answered.

    None where none did, or where other processes have come into roles' places since.
    """
    folder = f"{attempt}/{rundir.EVIDENCE}"
    try:
        names = [entry.name for entry in client.list(folder) if entry.name.endswith(".json")]
    except RelayError:  # nobody asked, or it is an attempt of an older rltui
        return None
    numbers = {name: int(name.partition("-")[0]) for name in names if name.partition("-")[0].isdigit()}
    newest = [name for name, number in numbers.items() if number == max(numbers.values())][:MOST_NODES]
    found = (parse_answer(tail_of(client, f"{folder}/{name}", ANSWER_BYTES)) for name in newest)
    answers = [answer for answer in found if answer is not None]
    if not answers:
        return None
    since, roles = _roles(client, attempt)
    seen = joined(answers, roles)
    return seen if since <= seen.at else None


def parse_answer(data: bytes) -> Answer | None:
    """One node's answer, or None where it is something else; stacks keep their lines."""
    return decode(data, Answer, as_it_is=True)


def joined(answers: list[Answer], roles: dict[tuple[str, int], str]) -> Evidence:
    """The answers as one, with the names of roles (by node and pid)."""
    processes = [
        structs.replace(one, role=roles.get((answer.host, one.pid), ""), host=answer.host)
        for answer in answers
        for one in answer.processes
    ]
    there = {(one.host, one.pid) for one in processes}
    answered = {answer.host for answer in answers}
    gone = tuple(
        f"{role} (pid {pid} on {host})"
        for (host, pid), role in roles.items()
        if host in answered and (host, pid) not in there
    )
    return Evidence(max(answer.at for answer in answers), tuple(processes), gone)


def _roles(client: RelayClient, attempt: str) -> tuple[float, dict[tuple[str, int], str]]:
    """Since when (epoch seconds), and roles by node, named as samplers name it, and pid, by the newest event."""
    placed = [event for event in _events(client, attempt, "roles") if isinstance(event.get("roles"), list)]
    at = placed[-1].get("time") if placed else 0.0
    return float(at) if isinstance(at, (int, float)) else 0.0, roles_told(placed)


def _events(client: RelayClient, attempt: str, *words: str) -> Iterator[dict[str, Any]]:
    """The attempt's newest events that have one of ``words`` as their kind or as a key, oldest first."""
    marks = [f'"{word}"'.encode() for word in words]
    for line in tail_of(client, f"{attempt}/{rundir.EVENTS}", EVENTS_BYTES).split(b"\n"):
        if any(mark in line for mark in marks) and (event := parse_object(line)) is not None:
            yield event


MOST_RECORDS = 512
MOST_BYTES = 1 << 27
"""Of all records together: of a larger run some ranks are left out."""


def read_records(client: RelayClient, attempt: str) -> dict[str, bytes]:
    """What torch left when a collective of the attempt timed out, and the newest that was asked for, by file name."""
    folder = f"{attempt}/{rundir.EVIDENCE}"
    try:
        named = [
            one
            for one in client.list(folder)
            if one.type == "file" and not one.name[0].isdigit() and flight_recorder.named(one.name)
        ]
    except RelayError:  # nobody asked, or it is an attempt of an older rltui
        return {}
    wanted = ("", max((flight_recorder.request_of(one.name) for one in named), default=""))
    entries = [one for one in named if flight_recorder.request_of(one.name) in wanted]
    found: dict[str, bytes] = {}
    left = MOST_BYTES
    for entry in entries[:MOST_RECORDS]:
        if entry.size <= min(left, flight_recorder.MOST_BYTES):
            found[entry.name] = _whole(client, f"{folder}/{entry.name}")
            left -= len(found[entry.name])
    return found


def record_lines(client: RelayClient, attempt: str, picture: RunPicture) -> list[str]:
    """Which ranks did not join which collective, in lines for a diagnosis; of the past where the run has gone on."""

    def tells(name: str) -> bool:
        request = flight_recorder.request_of(name)
        return not request or stood_still(int(request) / 1000, picture, progress.scale())

    return lines_of({name: data for name, data in read_records(client, attempt).items() if tells(name)})[0]


def in_json(data: bytes) -> str:
    """A record as text, for people and other programs; empty for what is none, or holds more than plain data."""
    try:
        return json.dumps(flight_recorder.read(data), default=str)
    except (ValueError, RecursionError):
        return ""


def _whole(client: RelayClient, path: str) -> bytes:
    data = b""
    try:
        for chunk in pieces(client, path):
            data += chunk.data
            if len(data) > flight_recorder.MOST_BYTES:
                break
    except RelayError:  # gone, or not ours: what was read is what there is
        pass
    return data
