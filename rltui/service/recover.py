"""Finding out what became of submissions whose outcome nobody wrote down.

Every intent without an outcome is looked up by its mark: in the attempt's directory, then at the scheduler. What is
found is adopted. What is not found for long enough is offered for resubmission, never resubmitted. May be done at any
time, again and again, and by several rltui at once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from rltui.cluster.cluster import Cluster
from rltui.errors import ClusterError
from rltui.onnode import processes
from rltui.onnode.rundir import attempt_folder
from rltui.runs.claims import note_submitted, read_evidence, read_uuid, settle_unstarted, withdraw
from rltui.runs.directory import draft_folder
from rltui.runs.journal import LOOK_UP_FOR_S, NEVER_SENT, Journal, Submission, fold_submissions
from rltui.watch.snapshots import RunsSnapshot, RunSummary

OTHER_HOST_S = 180.0
"""Age from which a submission begun on another machine counts as left alone: its writer cannot be looked at."""

RETRY_S = (0.0, 5.0, 10.0, 20.0, 30.0, 60.0)
"""Pauses between looks at the same submission; the last one stays."""


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

        A cluster that is away leaves them as they are.
        """
        for submission in self.open_submissions():
            if self._is_due(submission.uuid) and not _is_at_it(submission, self._clock()):
                try:
                    self._look(submission)
                except ClusterError:
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
        elif evidence.is_there and evidence.ended:
            self._write(submission, "superseded")
        elif self._clock() - submission.sent_at >= LOOK_UP_FOR_S and submission.phase != "absent":
            self._write(submission, "absent")

    def _record(self, submission: Submission, job_id: str) -> None:
        note_submitted(self._cluster.client, submission.path, submission.uuid, job_id)
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
