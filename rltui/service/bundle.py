"""What there is to know of a run in trouble, as one file to attach to a bug report, without secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.diagnose.lines import Line, clean
from rltui.onnode import evidence, rundir
from rltui.service.context import Context
from rltui.service.read_evidence import ask_nodes, in_json, read_records
from rltui.service.recording import SMALL_BYTES, Packer
from rltui.watch.lines import parse_object
from rltui.watch.snapshots import RunSummary

TAIL_BYTES = 1 << 20
MOST_ANSWERS = 256
MOST_STREAMS = 500


class Bundle(Struct, frozen=True):
    """One bundle: a recording of the newest attempt, and what its nodes answered.

    Attributes:
        path: The file.
        answered: Nodes that said what their processes are doing.
        silent: Nodes that were asked and did not answer.
        files: What is in it.
    """

    path: str
    answered: tuple[str, ...]
    silent: tuple[str, ...]
    files: tuple[str, ...]


def make_bundle(context: Context, run: RunSummary, target: Path) -> Bundle:
    """Ask the nodes of a live run what they are doing, and write all that is known of it into ``target``.

    Args:
        context: The run's cluster.
        run: The run, with its newest attempt.
        target: The file to make.

    Raises:
        UsageError: The file cannot be written.
    """
    client = context.cluster.client
    attempt = rundir.attempt_folder(run.path, run.attempt)
    silent = ask_nodes(client, attempt, "rltui bundle", evidence.ANSWER_S) if run.is_live else ()
    packer, folder = Packer(client, run), rundir.attempt_folder("", run.attempt)[1:]
    packer.add_run(answers=False)
    packer.add_attempt(run.attempt, answers=False, most_bytes=TAIL_BYTES)
    packer.put(f"{folder}/last-lines.txt", _last_lines(packer.text(f"{folder}/{rundir.OUT_LOG}")))
    names = _answers(client, attempt)
    for name in names:
        text = packer.add(f"{folder}/{rundir.EVIDENCE}/{name}", SMALL_BYTES)
        packer.put(f"{folder}/{rundir.EVIDENCE}/{name.removesuffix('.json')}-stacks.txt", _stacks(text))
    for name, data in read_records(client, attempt).items():
        packer.put(f"{folder}/{rundir.EVIDENCE}/{name.removesuffix('.json')}.json", in_json(data))
    packer.put(f"{folder}/why.txt", _verdict(context, run))
    saved = packer.save(target)
    answered = sorted({name.partition("-")[2].removesuffix(".json") for name in names})
    return Bundle(saved.path, tuple(answered), silent, saved.files)


def _verdict(context: Context, run: RunSummary) -> str:
    """What ``rltui why`` says of the run with the evidence that was just taken."""
    from rltui.diagnose.report import as_text
    from rltui.service.why import examine_run, nothing_found

    found = examine_run(context, run)
    return "\n".join(as_text(found.diagnoses) if found.diagnoses else [nothing_found(run, at_rest=found.at_rest)])


def _answers(client: RelayClient, attempt: str) -> list[str]:
    try:
        entries = client.list(f"{attempt}/{rundir.EVIDENCE}")
    except RelayError:  # an attempt of an older rltui
        return []
    names = (entry.name for entry in entries if entry.name.endswith(".json"))
    return sorted(name for name in names if name.partition("-")[0].isdigit())[-MOST_ANSWERS:]


def _stacks(text: str) -> str:
    """The stacks of one node's answer once more, to be read by people."""
    answer = parse_object(text) or {}
    told = [one for one in answer.get("processes", ()) if isinstance(one, dict)]
    ray = answer.get("ray") or {}
    of_ray = [f"Ray: {kind[:-1]} {_of_ray(one)}" for kind in ("tasks", "actors") for one in ray.get(kind, ())]
    of_processes = [
        f"pid {one.get('pid')} {one.get('title')} state {one.get('state')} {one.get('wchan')}\n{one.get('stack', '')}\n"
        for one in told
    ]
    return "\n".join([*of_ray, *of_processes])


def _of_ray(row: Mapping[str, object]) -> str:
    """A task or an actor in a line."""
    name = row.get("name") or row.get("repr_name") or row.get("class_name")
    why = row.get("error_message") or row.get("death_cause")
    return f"{name} is {row.get('state')} on {row.get('node_id')}{f': {why}' if why else ''}"


def default_name(run_id: str) -> str:
    """The file's name where the user gives none."""
    return f"{run_id}-bundle.tar.gz"


def in_words(bundle: Bundle) -> Sequence[str]:
    """What to say of a bundle that is made."""
    silent = [f"no answer from {', '.join(bundle.silent)}"] if bundle.silent else []
    nodes = f"processes of {', '.join(bundle.answered)}" if bundle.answered else "no node was asked"
    return [bundle.path, *silent, f"{len(bundle.files)} files; {nodes}; secrets are masked, read it before you send it"]


def _last_lines(text: str) -> str:
    """The last line that each rank, actor or other writer of a log wrote, one a line, the newest last."""
    newest: dict[tuple[str, str, str], Line] = {}
    for number, raw in enumerate(text.encode("utf-8", "replace").split(b"\n"), 1):
        line = clean(raw, number)
        if line.text.strip():
            newest.pop(line.stream, None)
            newest[line.stream] = line
    return "".join(f"{_writer(line)}: {line.text}\n" for line in list(newest.values())[-MOST_STREAMS:])


def _writer(line: Line) -> str:
    words = (line.actor, line.pid and f"pid {line.pid}", line.rank and f"rank {line.rank}", line.node)
    return " ".join(word for word in words if word) or "the program itself"
