"""The files of a run directory: their names, and how they are written so that a reader never sees half a file.

    <run_root>/<run_id>/
        run.json                    what the run is; written once
        archived.json               of a run that was put away: the file that the rest of it is in
        code/                       rltui and trainers as submitted
        attempts/01/
            layout.yaml             the layout as resolved
            job.json                what the supervisor is to start (no secret in it)
            script.json             of a script of another system: its name, words, folder and dialect
            submitted.json          the scheduler's id of it (0600); written by rltui once it knows
            .lock-<uuid>/           made by whoever starts the attempt, or by rltui so that nobody can any more
            .room-for-the-end       of one that lives: taken away for the files of its end, should the disk be full
            .told-<event>-<channel> somebody told people of that, or is about to
            env                     NAME=value lines (0600), read by the supervisor
            cancel.json             somebody asks the driver of a run in an allocation to end it
            adopted.json            of a job that rltui did not start: which it is, and where its output goes
            catch-up.json           how far that output has been read, and what was known there
            stage.json              where the attempt stands
            end.json                how it ended; written once
            slurm.json              under Slurm: job id, which start of it, nodes, head, time limit
            preflight.json          under Slurm: what each node said before Ray came up, and which are bad
            failure.json            the word for what ended it, found by rltui afterwards
            out.log                 all output of trainer and Ray
            metrics.jsonl           one object a training step
            events.jsonl            one object an event
            memory.json             each role's peaks of memory, moment by moment, and what was estimated
            selftest.json           of a self-test: what it found, part by part; selftest/ has its parts' own runs
            gpu-<host>.jsonl        the sampler's lines
            sampling.log            of an adopted job: what srun said of the samplers beside it
            evidence/               what each process was doing when somebody asked: request.json, ID-<host>.json
            ray.json, status.json   endpoints with their tokens (0600)
            actors.json             what Ray's dashboard last said, where rltui cannot ask it (0600)
            status-now.json         the same of the trainer's status endpoint
        checkpoints/step-000050/    COMPLETE is written last
        evaluations/step-000050.jsonl   some answers of the evaluation after that step; the newest few files are kept
        export/step-000050/         a checkpoint as a Hugging Face folder, where somebody asked for it
        wandb/

This module is used on nodes, so it keeps to the standard library and Python 3.8.
"""

import contextlib
import errno
import json
import os
import resource
import signal
import stat
import tempfile
import time
from typing import Any, Dict, List, Optional

SCHEMA = 1

ROOM, ROOM_BYTES = ".room-for-the-end", 1 << 16

RUN = "run.json"
ARCHIVED = "archived.json"
LAYOUT = "layout.yaml"
JOB = "job.json"
SCRIPT = "job.sbatch"
SCRIPT_RUN = "script.json"
SUBMITTED = "submitted.json"
ADOPTED = "adopted.json"
CANCEL = "cancel.json"
CATCH_UP = "catch-up.json"
ENVIRONMENT = "env"
STAGE = "stage.json"
END = "end.json"
OUT_LOG = "out.log"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
SAMPLES = "samples.jsonl"
ORIGINS = "origins.json"
"""Where each setting of the layout comes from (``layout/origins.py``)."""
OWN_CODE = "own_code.zip"
"""Python of the user that the layout names."""
MEMORY = "memory.json"
SELFTEST = "selftest.json"
"""What a self-test found, part by part (``trainers/selftest``)."""
RAY_ENDPOINT = "ray.json"
STATUS_ENDPOINT = "status.json"
ACTORS = "actors.json"
STATUS_NOW = "status-now.json"
SUPERVISOR = "supervisor.json"
FAILURE = "failure.json"
HANDS_OFF = "hands-off.json"
DECISIONS = "hands-off.jsonl"
SLURM = "slurm.json"
PREFLIGHT = "preflight.json"
EVIDENCE = "evidence"
EVIDENCE_REQUEST = "request.json"
ATTEMPTS = "attempts"
CHECKPOINTS = "checkpoints"
EXPORT = "export"
CHECKPOINT_COMPLETE = "COMPLETE"
EVALUATIONS = "evaluations"
EVALUATING = "evaluating"
"""First word of the detail of the stage ``training`` while an evaluation delays the next step."""

GENERIC = "generic"
"""Name of the dialect of programs whose words nobody knows: steps are taken from the commonest ways of saying them."""

RESTART = "restart"
"""Kind of the events of a role that died and is started again, or runs again."""

AWAITED = "awaited"
"""Kind of the events of a standstill that say for whom the others wait."""

SYMPTOM = "symptom"
"""Kind of the events of something that goes wrong silently; their ``cause`` is its id."""

TOLD_EVENTS = ("started", "ended", "stalled", "warned", "fixed", "needs you")
"""What people can be told of an attempt (``onnode/notify.py``)."""

TOLD_BY_DEFAULT = ("ended", "stalled", "warned", "needs you", "fixed")

ATTEMPT_VARIABLE = "RLTUI_ATTEMPT"
"""Environment variable that every process of an attempt carries; its value is the attempt's uuid."""
DECIDER_VARIABLE = "RLTUI_DECIDER_DIR"
"""State and cache of what decides how a run goes on (``rltui/paths.py``)."""

PART_LABEL = "rltui-part"
"""Label of a Ray node: the number of its kind, which is its component of a het job; the first kind's have none."""

COLLECTIVES_MEMORY = "rltui-collectives"
"""Name of the memory file (memfd_create(2)) in which a role keeps its newest collectives, a JSON object a line."""

STACKS_MEMORY = "rltui-stacks"
"""Name of the memory file into which a role's faulthandler writes its stacks on ``STACKS_SIGNAL``."""

STACKS_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 7
"""Not one of the two for users: NCCL, Ray and schedulers have taken those."""

FLIGHT_MEMORY = "rltui-flight-record"
"""Name of the memory file in which a learner leaves torch's record of its collectives when it is asked to."""

FLIGHT_HEAD_BYTES = 64
"""Of that file, before the record: a JSON object of ``pipe`` (the descriptor into which whoever asks writes a byte),
``count`` (records so far) and ``bytes`` (of the newest)."""

FLIGHT_RECORD = "nccl_trace_rank_"
"""What torch and its tools call a rank's record of its collectives, before the rank; in the folder of evidence."""

FLIGHT_RECORD_VARIABLE = "TORCH_FR_DUMP_TEMP_FILE"
"""Where torch reads the beginning of that file's path."""

SECRET = frozenset({ENVIRONMENT, RAY_ENDPOINT, STATUS_ENDPOINT, OWN_CODE})
"""Files that hold tokens or the user's own code: nobody else's in any run."""

STAGES = ("submitted", "queued", "preflight", "ray-up", "placing", "loading", "training", "saving", "ended")
"""Stages of an attempt, in the order in which they happen (training and saving alternate)."""

OUTCOMES = ("finished", "failed", "cancelled", "lost", "time-limit")
"""How an attempt can end. ``lost``: its processes vanished without a word (power cut, kill -9). ``time-limit``: it
saved and ended because the scheduler's time limit came near."""


def is_shared(folder: str) -> bool:
    """Whether a group may read what is made in ``folder``: its own bits say so (``run_root_group`` of the profile)."""
    try:
        bits = os.stat(folder).st_mode
    except OSError:
        return False
    return bool(bits & stat.S_ISGID and bits & stat.S_IRGRP)


def file_mode(path: str) -> int:
    """The mode of a file that is made at ``path``: 0640 in a folder that a group shares, else 0600, as all secrets."""
    return 0o640 if os.path.basename(path) not in SECRET and is_shared(os.path.dirname(path) or ".") else 0o600


def folder_mode(parent: str) -> int:
    """The mode of a folder that is made in ``parent``, whose group it gets where a group shares it."""
    return 0o750 if is_shared(parent) else 0o700


def ray_share(job: Dict[str, Any], part: int) -> Dict[str, int]:
    """What Ray is told that each node of a component has (``cpus``, ``gpus``), by an attempt's ``job.json``."""
    shares = job.get("parts")
    return dict(shares[part] if shares else job.get("ray") or {})


def keep_private(attempt: str) -> None:
    """Let what this process and its children make be for nobody, or for the group that shares the attempt to read.

    None of them dumps its core there: it holds the secrets of its environment. A script may say ``ulimit -c`` itself.
    """
    os.umask(0o027 if is_shared(attempt) else 0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def keep_room(attempt: str) -> None:
    """Take the room on the disk that the end of the attempt needs, so that it can be told where the disk is full."""
    with contextlib.suppress(OSError), open(os.path.join(attempt, ROOM), "wb") as stream:
        stream.write(os.urandom(ROOM_BYTES))  # a file system that compresses would keep no room for zeros


def write_json(path: str, value: Any, mode: Optional[int] = None, exclusive: bool = False) -> None:
    """Replace ``path`` by ``value`` as JSON in one step; a reader sees the old or the new file, never a part.

    Raises:
        FileExistsError: It is ``exclusive``, and the file is there.
    """
    folder = os.path.dirname(path) or "."
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=folder)  # rename(2) does not cross file systems
    try:
        # half a character, as JSON of others may hold, is none in UTF-8
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as stream:
            json.dump(value, stream, ensure_ascii=False, separators=(",", ":"))
            stream.write("\n")
        os.chmod(temporary, file_mode(path) if mode is None else mode)
        if not (exclusive and _linked(temporary, path)):
            os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _linked(temporary: str, path: str) -> bool:
    """Give a file a second name, which fails where that is taken; False on a disk that has no hard links."""
    try:
        os.link(temporary, path)
    except OSError:
        if os.stat(temporary).st_nlink > 1:
            return True  # NFS asks again where an answer was lost, and finds its own link
        if os.path.exists(path):
            raise FileExistsError(path) from None
        return False
    return True


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """Return the object in ``path``, or None where there is none or it cannot be parsed."""
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def read_tail(path: str, offset: int = 0, limit: int = 1 << 20) -> str:
    """The text of a file from ``offset`` on, at most its last ``limit`` bytes; empty where there is none."""
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(offset, size - limit))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def written_at(path: str) -> float:
    """When the file was last written, epoch seconds; 0 where there is none."""
    try:
        return os.path.getmtime(path)
    except OSError:
        return 0.0


def is_gone(folder: str) -> bool:
    """Whether there is no such folder any more; one on a disk that does not answer just now may be there."""
    try:
        return not os.stat(folder)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR)


def append_line(path: str, value: Any) -> None:
    """Append ``value`` as one JSON line, in one write, so that concurrent readers see whole lines or none.

    Raises:
        OSError: It cannot be written, or not as a whole: then the next line begins anew.
    """
    line = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode("utf-8", "replace")
    with open(path, "ab+", 0, opener=lambda name, flags: os.open(name, flags, file_mode(name))) as file:
        line = line_start(file.fileno()) + line
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def line_start(descriptor: int) -> bytes:
    """What the next line of a file begins with: a line's end where a kill or a full disk cut off the last one."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) not in (b"\n", b"") else b""


def log_event(attempt: str, kind: str, text: str, **details: Any) -> None:
    """Append an event (``kind`` is one word such as ``stage``, ``error``, ``checkpoint``) to the attempt's events."""
    append_line(os.path.join(attempt, EVENTS), {"time": time.time(), "kind": kind, "text": text, **details})


def write_stage(
    attempt: str,
    stage: str,
    detail: str = "",
    step: Optional[int] = None,
    steps: Optional[int] = None,
    progress: Optional[float] = None,
    roles: Optional[Dict[str, str]] = None,
) -> None:
    """Record where the attempt stands in ``stage.json``; a change of stage is also an event.

    Args:
        attempt: The attempt's directory.
        stage: One of ``STAGES``.
        detail: A few words for people, such as ``7/8 nodes, missing nid010869``.
        step: Training steps done.
        steps: Training steps of the run.
        progress: Fraction of this stage that is done, 0 to 1, where it is known.
        roles: State of each role while loading, such as ``{"learner 0": "ready", "engine 0": "loading"}``.

    Only one process writes at a time: the supervisor until the trainer starts and after it ended, the trainer between.
    """
    if stage not in STAGES:
        raise ValueError("unknown stage %r" % stage)
    path = os.path.join(attempt, STAGE)
    before = read_json(path) or {}
    now = time.time()
    history: List[Dict[str, Any]] = list(before.get("history", []))
    changed = before.get("stage") != stage
    # training and saving alternate for ever, so only the first visit of each is history
    if changed and all(entry["stage"] != stage for entry in history):
        history.append({"stage": stage, "at": now})
        log_event(attempt, "stage", stage + (": " + detail if detail else ""))
    record = {
        "schema": SCHEMA,
        "stage": stage,
        "since": now if changed else before.get("since", now),
        "updated": now,
        "detail": detail,
        "step": before.get("step") if step is None else step,
        "steps": before.get("steps") if steps is None else steps,
        "progress": progress,
        "roles": before.get("roles", {}) if roles is None else roles,
        "history": history,
    }
    write_json(path, record)


def write_end(attempt: str, outcome: str, exit_code: Optional[int], reason: str, **details: Any) -> bool:
    """Write ``end.json``: the attempt is over. It is also its last stage and an event.

    Several may come to it at once: the supervisor, its guard, whoever finds it gone, the job's next start. What the
    first one wrote stays, as what comes after an end is done once.

    Args:
        attempt: The attempt's directory.
        outcome: One of ``OUTCOMES``.
        exit_code: The trainer's, where it has one.
        reason: One sentence.
        **details: Further keys, such as ``bad_nodes``.

    Returns:
        Whether it was written now.
    """
    if outcome not in OUTCOMES:
        raise ValueError("unknown outcome %r" % outcome)
    path = os.path.join(attempt, END)
    if os.path.exists(path):
        return False
    with contextlib.suppress(OSError):  # an older attempt has none
        os.unlink(os.path.join(attempt, ROOM))
    # before the end itself: whoever sees that takes all other files for final; a full disk may have room for one
    with contextlib.suppress(OSError):
        write_stage(attempt, "ended", reason)
    end = {"schema": SCHEMA, "outcome": outcome, "exit_code": exit_code, "reason": reason, "at": time.time()}
    try:
        write_json(path, {**end, **details}, exclusive=True)
    except FileExistsError:
        return False
    with contextlib.suppress(OSError):
        log_event(attempt, "end", "%s: %s" % (outcome, reason))
    return True


def run_of(attempt: str) -> str:
    """The run directory that the attempt's directory lies in."""
    return os.path.dirname(os.path.dirname(os.path.abspath(attempt)))


def run_id_of(attempt: str) -> str:
    """The id of the run that the attempt is of: the name of its directory."""
    return os.path.basename(run_of(attempt))


def attempt_folder(run: str, number: int) -> str:
    """Return the directory of attempt ``number`` of the run directory ``run``."""
    return "%s/%s/%02d" % (run, ATTEMPTS, number)


def lock_folder(attempt: str, uuid: str) -> str:
    """Return the directory whose making starts the submission ``uuid``: a second copy of it finds it made and ends."""
    return "%s/.lock-%s" % (attempt, uuid)


class EndedError(Exception):
    """The attempt cannot go on; the text is its reason."""
