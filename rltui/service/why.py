"""Why a run died: its logs, events, stages, metrics, samples, job and end, read through the relay and diagnosed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from rltui.cluster.relay_client import RelayClient, pieces
from rltui.cluster.relay_types import RelayError
from rltui.diagnose.diagnose import Findings, examine
from rltui.diagnose.first_exception import as_json
from rltui.diagnose.fitting import fitted, in_own_words
from rltui.diagnose.index import CAUSES
from rltui.diagnose.kind import PROGRAM
from rltui.diagnose.nearest import in_words
from rltui.diagnose.recent import RunPicture
from rltui.diagnose.run_words import at_rest_words, symptoms_of, words_of
from rltui.diagnose.sources import Source, decoded, text_source
from rltui.diagnose.verdicts import SURE_ENOUGH, Diagnosis
from rltui.errors import RltuiError
from rltui.layout.load import LoadedLayout
from rltui.onnode import rundir
from rltui.runs.directory import load_attempt_layout
from rltui.runs.script_job import LARGEST, ScriptJob, read_script_job
from rltui.service.attempts import Ending
from rltui.service.bad_nodes import record_slow
from rltui.service.cockpit import WhyReport
from rltui.service.context import Context
from rltui.service.describe import steps_done
from rltui.service.read_evidence import asked_nodes, record_lines, stuck_lines
from rltui.service.run_commands import with_next_start, with_pending_command, with_run_commands
from rltui.service.run_jobs import down_now
from rltui.service.run_picture import read_picture
from rltui.service.why_advice import advised, without_tuning
from rltui.watch.attempt_logs import RAY_LOGS
from rltui.watch.pending import pending_words, waiting_job
from rltui.watch.silence import no_step_words
from rltui.watch.snapshots import RunSummary
from rltui.watch.text import plain

if TYPE_CHECKING:
    from rltui.service.attempt_differences import Differences


HEAD_BYTES = 1 << 26
TAIL_BYTES = 1 << 26
"""Of a larger log its beginning and its end are read: the first error and the last words."""

MOST_LOGS = 200
QUICK_BYTES = 1 << 20
MOST_QUICK_LOGS = 4

WELL = "Nothing is known to be wrong with it"
MOST_LAST_LINES = 5
BLOCK_LINES = 1 << 20
NOWHERE = "\x00 nothing says this \x00"
"""What is looked for where only line ends are to be counted."""
_READ_FIRST = (rundir.OUT_LOG, "ray.log")
_UNWANTED = (rundir.METRICS, ".token")
_BESIDE_THE_END = frozenset({"wrapper", "effect"})
"""Tiers that say nothing about an end that was wanted: whatever is ended leaves such words."""


def diagnose_run(context: Context, run: RunSummary, *, quick: bool = False) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of ``examine_run``."""
    return examine_run(context, run, quick=quick).diagnoses


def examine_run(context: Context, run: RunSummary, *, quick: bool = False) -> Findings:
    """Return what was wrong with the newest attempt of ``run``, causes first; remedies are in its layout's numbers.

    Args:
        context: The connection to the run's cluster.
        run: The run, with its newest attempt's stage, end and job.
        quick: Whether to read only the ends of the attempt's own logs, for a list of runs.
    """
    client = context.cluster.client
    attempt = rundir.attempt_folder(run.path, run.attempt)
    entries = client.list(attempt)
    names = [entry.name for entry in entries if entry.type in ("file", "link")]
    picture = read_picture(client, run, names)
    logs = _logs(client, attempt, names, quick=quick)
    # nothing beside an adopted run asks its nodes; what they took to answer, it may have gone on in
    if run.is_adopted and run.is_live and not quick and asked_nodes(client, attempt, picture):
        picture = read_picture(client, run, names)
    has_slurm = context.cluster.profile.scheduler == "slurm"
    held = run.job.nodes if run.is_live and run.job is not None and not quick else ()
    if held and has_slurm:
        picture = structs.replace(picture, unanswering=down_now(client, held))
    # the word of a run that died stays: it is the cause that the whole look names
    stuck = [] if quick and run.is_live else _stuck(client, attempt, picture)
    findings = examine([*(_log(client, attempt, name, quick) for name in logs), *_said_besides(picture, stuck)])
    found, first = findings.diagnoses, findings.first_exception
    if picture.was_wanted:
        # an error that nobody knows, in a log of Ray's own servers, did not end what was to end
        found = tuple(one for one in found if CAUSES[one.id].tier not in _BESIDE_THE_END and one.id != PROGRAM)
        first = None
    loaded = None if quick else _layout(client, attempt)
    if loaded is not None:
        found = tuple(fitted(one, msgspec.to_builtins(loaded.layout)) for one in found)
    script = read_script_job(client, attempt) if rundir.SCRIPT_RUN in names and not quick else None
    if script is not None:
        found = _in_own_words(client, attempt, script, found)
    if run.is_live:
        if not quick:
            record_slow(context.cluster, run, symptoms_of(picture))
        found = with_pending_command(advised(without_tuning(found), picture.recent, loaded), run)
        found = with_next_start(found, run)
    else:
        found = tuple(_beside(one) for one in found)
    said = [one.mtime for one in entries if one.type == "file" and _is_log(one.name) and one.name != rundir.EVENTS]
    at_rest = at_rest_words(structs.replace(picture, said_at=max(said, default=0.0))) if run.is_live else ()
    work = loaded.layout if loaded is not None else script
    # of a run that is well, or that was to end, no words speak of a failure
    ends = () if run.is_live or run.state == "finished" or picture.was_wanted else findings.ends
    return Findings(with_run_commands(found, run, work, has_slurm=has_slurm), first, at_rest, ends)


def _beside(one: Diagnosis) -> Diagnosis:
    """What a run suffered from while it went on is told of one that has ended, but has not ended it."""
    return structs.replace(one, secondary=True) if CAUSES[one.id].word else one


def failure_word(diagnoses: Sequence[Diagnosis]) -> str:
    """Return the id of the first cause, for a row of a list; empty where there is none that is sure enough."""
    is_sure = bool(diagnoses) and not diagnoses[0].secondary and diagnoses[0].confidence >= SURE_ENOUGH
    return diagnoses[0].id if is_sure else ""  # what is only perhaps so is said by why, with that word


def failure_of(context: Context, run: RunSummary) -> str:
    """Return the failure word of ``run``, from little reading; empty for one that was to end, or that still lives."""
    if run.is_live or run.state == "finished":
        return ""
    return failure_word(diagnose_run(context, run, quick=True))


def nothing_found(run: RunSummary, before: Sequence[Ending] = (), at_rest: Sequence[str] = ()) -> str:
    """Return the answer for a run with no diagnosis: that it is done or well, or that nobody knows.

    Args:
        run: The run.
        before: How its earlier attempts ended; of a live run the last of them is told, as it is why there is another.
        at_rest: What is seen of a live run that makes no steps.
    """
    steps = f" after {steps_done(run)}" if run.stage.step is not None else ""
    if run.state == "finished":
        return f"{run.run_id} finished{steps}. {WELL}."
    if run.is_live:
        job = waiting_job(run)
        waits = pending_words(job, time.time()) if job is not None else run.stage.detail * (run.state == "queued")
        why = f": {waits}" if waits else steps
        how = before[-1].reason.rstrip(".") if before else ""  # Ray's reasons are sentences, ours are not
        again = f" Attempt {before[-1].attempt} ended: {how}." if how else ""
        quiet = [f"there has been {words}" for words in (no_step_words(run),) if words]
        seen = "; ".join([*quiet, *at_rest])
        verdict = f"{seen[:1].upper()}{seen[1:]}, and nothing says why yet" if seen else WELL
        return f"{run.run_id} is {run.state}{why}.{again} {verdict}."
    if run.end is not None and run.end.outcome in ("cancelled", "time-limit"):
        return f"{run.run_id} was ended{steps}: {run.end.reason or run.end.outcome}. Nothing else is known to be wrong."
    said = f" ({run.end.reason})" if run.end is not None and run.end.reason else ""
    return (
        f"{run.run_id} is {run.state}{steps}{said}, but no known cause is in its logs, stages, metrics, samples, job "
        f"and end."
    )


def last_words(run: RunSummary, found: Findings) -> tuple[str, ...]:
    """What the first log that says anything said last, where nothing is found in any: somebody has to read it."""
    if found.diagnoses or found.first_exception is not None:
        return ()
    ends = (
        [line for each in end.split(b"\n") if (line := plain(each.decode("utf-8", "replace")).strip())]
        for end in found.ends
    )
    lines = next(filter(None, ends), [])[-MOST_LAST_LINES:]
    return (f"The last it said (`rltui logs {run.run_id}` has all):", *(f"  {line}" for line in lines)) if lines else ()


def _stuck(client: RelayClient, attempt: str, picture: RunPicture) -> list[str]:
    """Who holds up the others: what the nodes saw of the processes, else what torch noted of their collectives."""
    return stuck_lines(client, attempt, picture) or record_lines(client, attempt, picture)


def _said_besides(picture: RunPicture, stuck: Sequence[str]) -> list[Source]:
    """What is no log, as sources of lines, so that it is evidence like any other."""
    return [
        text_source(name, "\n".join(lines), has_lines=False)
        for name, lines in {**words_of(picture), rundir.EVIDENCE: stuck}.items()
        if lines
    ]


def _logs(client: RelayClient, attempt: str, names: Sequence[str], *, quick: bool) -> list[str]:
    """Names of the attempt's logs, its own first, then the scheduler's and Ray's."""
    own = sorted((name for name in names if _is_log(name)), key=lambda name: (name not in _READ_FIRST, name))
    if quick:
        return own[:MOST_QUICK_LOGS]
    try:
        of_ray = [entry.name for entry in client.list(f"{attempt}/{RAY_LOGS}") if entry.type == "file"]
    except RelayError:  # there is no such folder unless Ray left logs behind
        of_ray = []
    return [*own, *(f"{RAY_LOGS}/{name}" for name in sorted(of_ray))][:MOST_LOGS]


def _is_log(name: str) -> bool:
    if name in _UNWANTED or name.startswith("gpu-"):
        return False
    return name.endswith((".log", ".out", ".err", ".gz")) or name == rundir.EVENTS


def _log(client: RelayClient, attempt: str, name: str, quick: bool) -> Source:
    path, has_records = f"{attempt}/{name}", name != rundir.EVENTS
    if quick and not name.endswith(".gz"):
        return Source(plain(name), _last_block(client, path), has_lines=False, has_records=has_records)
    return Source(plain(name), decoded(_blocks(client, path)), has_records=has_records)


def _last_block(client: RelayClient, path: str) -> Iterator[bytes]:
    try:
        yield client.tail(path, QUICK_BYTES).data
    except RelayError:  # rotated away or not readable
        return


def _blocks(client: RelayClient, path: str) -> Iterator[bytes]:
    """The file from its start, a piece at a time; of one that is too large the middle is empty lines."""
    try:
        for chunk in pieces(client, path):
            yield chunk.data
            read = chunk.offset + len(chunk.data)
            if read >= HEAD_BYTES and chunk.size > HEAD_BYTES + TAIL_BYTES:
                tail = chunk.size - TAIL_BYTES
                yield from _empty_lines(client, path, read, tail)
                yield from (end.data for end in pieces(client, path, tail))
                return
    except RelayError:  # rotated away or not readable: what else there is may tell enough
        return


def _empty_lines(client: RelayClient, path: str, start: int, stop: int) -> Iterator[bytes]:
    """As many line ends as the file has between two places, so that what follows keeps the numbers of its lines.

    They are counted where the file lies; a part of a line at ``stop`` stands alone.
    """
    yield b"\n"
    missing = -1
    while start < stop:
        passed = client.search(path, NOWHERE, start, stop - start, 1, (NOWHERE,))
        if passed.offset <= start:
            break
        start, missing = passed.offset, missing + passed.lines
    while missing > 0:
        yield b"\n" * min(missing, BLOCK_LINES)
        missing -= BLOCK_LINES


def _in_own_words(
    client: RelayClient, attempt: str, script: ScriptJob, found: tuple[Diagnosis, ...]
) -> tuple[Diagnosis, ...]:
    """``found`` with remedies in the words of the system whose script it is, and in its command's numbers."""
    from rltui.service.scripts import command_values, one_spelling

    text = _script_text(client, f"{attempt}/{script.script}") if script.script else b""
    path = Path(script.source or "script.sh")
    set_to = command_values(text.decode("utf-8", "replace"), path, script.folder, script.words)
    words = script.dialect.words
    values = {own: set_to[one_spelling(own)] for own in words.values() if one_spelling(own) in set_to}
    found = tuple(in_own_words(one, words, values) for one in found)
    return found if script.passes_words else tuple(_by_hand(one, script) for one in found)


_IN_IT = "Write it into {}, which does not hand its arguments on, and resubmit with --script."


def _by_hand(one: Diagnosis, script: ScriptJob) -> Diagnosis:
    """``one`` of a script that hands no arguments on: what is to reach its training has to be written into it."""
    return structs.replace(
        one,
        remedies=tuple(
            structs.replace(each, safe="never", summary=f"{each.summary} {_IN_IT.format(Path(script.source).name)}")
            if each.in_own_words
            else each
            for each in one.remedies
        ),
    )


def _script_text(client: RelayClient, path: str) -> bytes:
    """The script; nothing where it is not kept, as in a recording: remedies then name no numbers of its command."""
    try:
        return client.read(path, 0, LARGEST).data
    except RelayError:
        return b""


def _layout(client: RelayClient, attempt: str) -> LoadedLayout | None:
    try:
        return load_attempt_layout(client, attempt)
    except RltuiError:  # an unreadable layout costs the numbers of the remedies, not the diagnosis
        return None


def why_report(
    run: RunSummary, found: Findings, different: Differences | None = None, unfinished: str = ""
) -> WhyReport:
    """Return the answer to `!` for ``run`` from what was diagnosed, causes first.

    Args:
        run: The run.
        found: Its diagnoses, and the first exception where they say too little.
        different: What is different since the last attempt that went well.
        unfinished: What was to follow the attempt and did not.
    """
    first = as_json(found.first_exception) if found.first_exception is not None else None
    return WhyReport(
        run=run.identity,
        headline=_headline(run, found),
        findings=found.diagnoses,
        exception=(str(first["file"]), int(str(first["line"])), str(first["text"])) if first is not None else None,
        notes=(
            *filter(None, [unfinished]),
            *(_frames(first) if first is not None else ()),
            *last_words(run, found),
            *in_words(found.nearest),
            *(different.in_words() if different else ()),
        ),
    )


def _frames(first: Mapping[str, object]) -> tuple[str, ...]:
    frames = first["frames"]
    return tuple(f"    {frame}" for frame in frames) if isinstance(frames, list) else ()


def _headline(run: RunSummary, found: Findings) -> str:
    causes = [one for one in found.diagnoses if not one.secondary]
    if causes:
        return causes[0].summary if causes[0].confidence >= SURE_ENOUGH else f"Not sure: {causes[0].summary}"
    return nothing_found(run, at_rest=found.at_rest)
