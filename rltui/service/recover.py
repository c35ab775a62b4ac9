"""Finding out what became of submissions and changes of runs that were cut off in the middle.

Every intent without an outcome is looked up by its mark: in the attempt's directory, then at the scheduler. What is
found is adopted. What is not found for long enough is offered for resubmission, never resubmitted. May be done at any
time, again and again, and by several rltui at once.

A change of a live run ends one attempt and begins another. Where that was cut off, the run says what was to follow, so
that somebody can do it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from rltui.cluster.cluster import Cluster
from rltui.errors import ClusterError, RltuiError
from rltui.onnode import processes
from rltui.onnode.rundir import attempt_folder
from rltui.runs.claims import if_there, note_submitted, read_evidence, read_uuid, settle_unstarted, withdraw
from rltui.runs.directory import draft_folder
from rltui.runs.journal import LOOK_UP_FOR_S, NEVER_SENT, Journal, Submission, fold_submissions
from rltui.watch.snapshots import RunsSnapshot, RunSummary

OTHER_HOST_S = 180.0
"""Age from which a submission begun on another machine counts as left alone: its writer cannot be looked at."""

RETRY_S = (0.0, 5.0, 10.0, 20.0, 30.0, 60.0)
"""Pauses between looks at the same submission; the last one stays."""

REPLACE = "replace"
"""What the journal calls a change of a live run: an intent, which counts until a newer attempt is there."""

BUSY_S = 300.0
"""After that a change is done or has failed: an attempt has three minutes to end, and its next one is submitted."""

WANTED_S = 3600.0
"""A change of a run that goes on, and that nobody has made again for so long, is not wanted any more."""


class Recoverer:
    """Looks after the unfinished submissions to one cluster.

    Args:
        cluster: Where they were handed to.
        journal: What is written of them.
        clock: Epoch seconds by this machine.
    """

    def __init__(self, cluster: Cluster, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._journal = journal
        self._clock = clock
        self._looks: dict[str, tuple[int, float]] = {}

    def open_submissions(self) -> tuple[Submission, ...]:
        """Submissions to this cluster that are not settled, oldest first."""
        found = fold_submissions(self._journal.entries()).values()
        return tuple(one for one in found if one.cluster == self._cluster.name and one.needs_care)

    def recover(self) -> tuple[Submission, ...]:
        """Look at every unfinished submission that is due; returns those that are still open.

        A cluster that is away leaves them as they are, and so does a disk that takes nothing more of the journal.
        """
        for submission in self.open_submissions():
            if self._is_due(submission.uuid) and not _is_at_it(submission, self._clock()):
                try:
                    self._look(submission)
                except RltuiError:
                    continue
        return self.open_submissions()

    def explained(self, snapshot: RunsSnapshot, unsettled: Sequence[Submission]) -> RunsSnapshot:
        """``snapshot`` with a sentence on every submission that is not known, and those of others adopted if found."""
        by_place = {(one.run, one.attempt): one for one in unsettled if one.is_undecided}
        return structs.replace(snapshot, runs=tuple(self._explained(run, by_place) for run in snapshot.runs))

    def _explained(self, run: RunSummary, unsettled: Mapping[tuple[str, int], Submission]) -> RunSummary:
        if run.through or run.state != "unknown" or run.end is not None or run.job_id or run.job is not None:
            return run
        submission = unsettled.get((run.run_id, run.attempt))
        if submission is not None:
            return structs.replace(run, submission=in_words(submission, self._clock()))
        if not run.attempt or run.as_of:
            return run
        return structs.replace(run, submission=self._adopted_or_words(run))

    def _adopted_or_words(self, run: RunSummary) -> str:
        """Look for a submission that another machine's rltui began; what is said until it is found."""
        words = f"no rltui here knows of it; `rltui resubmit {run.run_id}` starts it, and bars the old one"
        if self._cluster.profile.scheduler == "local" or not self._is_due(run.path + str(run.attempt)):
            return words
        path = attempt_folder(run.path, run.attempt)
        cluster = self._cluster
        try:
            uuid = read_uuid(cluster.client, path)
            job_id = cluster.find_submission(uuid, run.created_at)
            if job_id:
                note_submitted(cluster.client, path, uuid, job_id)
                return f"found: it is job {job_id}"
        except ClusterError:
            pass
        return words

    def _is_due(self, what: str) -> bool:
        looks, due = self._looks.get(what, (0, 0.0))
        now = time.monotonic()
        if now < due:
            return False
        self._looks[what] = looks + 1, now + RETRY_S[min(looks + 1, len(RETRY_S) - 1)]
        return True

    def _look(self, submission: Submission) -> None:
        if submission.phase in ("done", "adopted"):
            self._record(submission, submission.job)
        elif submission.phase in ("intent", "failed"):
            self._settle(submission)
        else:
            self._look_up(submission)

    def _settle(self, submission: Submission) -> None:
        """It was never handed over, or refused: the attempt's directory is to say so too."""
        client = self._cluster.client
        client.run(["rm", "-rf", draft_folder(submission.path, submission.uuid)], timeout_s=20)
        reason = submission.reason or NEVER_SENT
        if submission.phase == "failed":
            settled = withdraw(client, submission.path, submission.uuid, reason)
        else:
            settled = settle_unstarted(client, submission.path, submission.uuid, "failed", reason)
        if settled:
            self._write(submission, "failed", reason=reason)
        else:
            self._look_up(submission)

    def _look_up(self, submission: Submission) -> None:
        cluster = self._cluster
        evidence = read_evidence(cluster.client, submission.path, submission.uuid)
        job_id = evidence.job or cluster.find_submission(submission.uuid, submission.sent_at or submission.intended_at)
        if job_id:
            self._write(submission, "adopted", job=job_id, recorded=evidence.noted)
            if not evidence.noted:
                self._record(submission, job_id)
        elif evidence.ended if evidence.is_there else submission.phase == "absent":
            # a job that finds no folder of its attempt ends at once
            self._write(submission, "superseded")
        elif self._clock() - submission.sent_at >= LOOK_UP_FOR_S and submission.phase != "absent":
            self._write(submission, "absent")

    def _record(self, submission: Submission, job_id: str) -> None:
        # a folder that somebody removed needs no note
        if_there(lambda: note_submitted(self._cluster.client, submission.path, submission.uuid, job_id))
        self._write(submission, "recorded")

    def _write(self, submission: Submission, phase: str, **details: object) -> None:
        about = {"run": submission.run, "attempt": submission.attempt, "uuid": submission.uuid}
        self._journal.write(
            submission.action, phase, **about, cluster=submission.cluster, path=submission.path, **details
        )


def in_words(submission: Submission, now: float) -> str:
    """What is known of an undecided submission, and what happens next."""
    if submission.phase == "absent":
        return f"it is nowhere to be found; `rltui resubmit {submission.run}` starts it, and bars the lost one"
    if _is_at_it(submission, now):
        return f"rltui (pid {submission.pid} on {submission.host}) is submitting it"
    left = LOOK_UP_FOR_S - (now - submission.sent_at)
    wait = f"; that is sure in {left:.0f} s" if left > 0 else ""
    return f"the answer was lost, and it is looked for by its mark{wait}"


def _is_at_it(submission: Submission, now: float) -> bool:
    """Whether the rltui that began the submission may still be busy with it."""
    if submission.phase not in ("intent", "submitting"):
        return False
    if submission.host != socket.gethostname():
        return now - max(submission.intended_at, submission.sent_at) < OTHER_HOST_S
    return may_live(submission.host, submission.pid, submission.started)


def may_live(host: str, pid: int, started: str) -> bool:
    """Whether the writer of an entry of the journal still runs; another machine's cannot be looked at, so it may."""
    return host != socket.gethostname() or (bool(started) and processes.alive(pid, started))


class Interrupted(Struct, frozen=True, kw_only=True):
    """A change that ended an attempt and never made its own, or an attempt of which no answer came back.

    Attributes:
        at: When the change began, epoch seconds.
        lost_attempt: The attempt that may never have been handed over, which holds all words itself; 0: none was made.
        overrides: Its ``key.path=value`` words.
        exclude: Nodes that it was to keep away from.
    """

    at: float = 0.0
    lost_attempt: int = 0
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def in_words(self) -> str:
        """What happened, in a sentence."""
        if self.lost_attempt:
            return (
                f"to start as attempt {self.lost_attempt}, and the rltui that submitted it ended in the middle of that"
            )
        return f"ended at {self.when} to go on with {self.change or 'the same layout'}, and no new attempt was made"

    @property
    def when(self) -> str:
        """When it began, this machine's time of day."""
        return time.strftime("%m-%d %H:%M:%S", time.localtime(self.at))

    @property
    def change(self) -> str:
        """The words of the new attempt, as ``rltui resubmit`` takes them."""
        return " ".join([*self.overrides, *(f"--exclude {node}" for node in self.exclude)])


class Replacements:
    """Changes of a cluster's runs that end an attempt and begin another.

    Args:
        journal: Where they are written down.
        cluster: Name of the cluster.
    """

    def __init__(self, journal: Journal, cluster: str) -> None:
        self._journal = journal
        self._cluster = cluster

    def note(self, run: RunSummary, overrides: Sequence[str], exclude: Sequence[str]) -> None:
        """Write down what is to follow the end of ``run``'s attempt, before that is ended.

        Raises:
            RltuiError: The journal cannot be written; nothing may be ended then.
        """
        self._journal.write(
            REPLACE, "intent", run=run.run_id, attempt=run.attempt, cluster=self._cluster,
            overrides=list(overrides), exclude=list(exclude),
        )  # fmt: skip

    def interrupted(self, run: RunSummary) -> Interrupted | None:
        """What was to follow ``run``'s attempt, or become of it; None where nothing was, or another attempt came."""
        return _interrupted(run, self._intents().get((run.run_id, run.attempt)))

    def unfinished_words(self, run: RunSummary) -> str:
        """What is said of ``run`` where a change of it is under way, or was interrupted; empty otherwise."""
        said = _unfinished(run, self._intents().get((run.run_id, run.attempt)))
        return f"{run.run_id} {said}." if said else ""

    def explained(self, snapshot: RunsSnapshot) -> RunsSnapshot:
        """``snapshot`` with a sentence on every change that is under way, or was interrupted."""
        intents = self._intents()
        if not intents:
            return snapshot

        def with_words(run: RunSummary) -> RunSummary:
            entry = intents.get((run.run_id, run.attempt))
            return structs.replace(run, unfinished=_unfinished(run, entry)) if entry is not None else run

        return structs.replace(snapshot, runs=tuple(map(with_words, snapshot.runs)))

    def _intents(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The newest change of each attempt that was to end it, by run and attempt."""
        return {
            (str(entry.get("run")), int(entry.get("attempt") or 0)): entry
            for entry in self._journal.entries()
            if entry.get("action") == REPLACE and entry.get("cluster") == self._cluster
        }


def _unfinished(run: RunSummary, entry: Mapping[str, Any] | None) -> str:
    left = _interrupted(run, entry)
    if left is not None:
        return f"is half done (rltui fix {run.run_id} goes on): it was {left.in_words()}"
    if entry is None or not run.is_live or run.last_attempt > run.attempt:
        return ""
    age_s, pid, host = time.time() - entry["time"], int(entry["pid"]), str(entry["host"])
    meant = _of(entry)
    if age_s < BUSY_S and may_live(host, pid, str(entry["started"])):
        return f"is ended by rltui (pid {pid} on {host}), to go on with {meant.change or 'the same layout'}"
    if age_s > WANTED_S:
        return ""
    words = " ".join(filter(None, ("rltui resubmit", run.run_id, "--cancel", meant.change)))
    return (
        f"is half done ({words} goes on): it was to end at {meant.when} and go on with "
        f"{meant.change or 'the same layout'}, but the rltui (pid {pid} on {host}) that did that has left off"
    )


def _of(entry: Mapping[str, Any]) -> Interrupted:
    overrides, exclude = (tuple(map(str, entry.get(name, ()))) for name in ("overrides", "exclude"))
    return Interrupted(at=float(entry["time"]), overrides=overrides, exclude=exclude)


def _interrupted(run: RunSummary, entry: Mapping[str, Any] | None) -> Interrupted | None:
    if (run.state == "unknown" and run.submission) or (run.end is not None and run.end.reason == NEVER_SENT):
        return Interrupted(lost_attempt=run.attempt)
    if entry is None or run.is_live or run.state == "finished" or run.last_attempt > run.attempt:
        return None
    went_on = run.end is not None and run.end.at - entry["time"] > WANTED_S
    return None if went_on else _of(entry)
