"""The client of one Slurm cluster: asks, submits, changes; all through the relay, nothing through a shell."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rltui.cluster.cluster import SubmitRefusedError, SubmitUnknownError
from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.relay_types import RelayError
from rltui.cluster.slurm.ids import checked, is_foreign
from rltui.cluster.slurm.nodelist import expand, fold, merged
from rltui.cluster.slurm.queries import by_id, is_same_job
from rltui.cluster.slurm.questions import SlurmQuestions
from rltui.cluster.slurm.records import new_mark, split_records, write_duration
from rltui.cluster.slurm.replies import SlurmRefusedError, SlurmUnansweredError, read_trouble
from rltui.cluster.slurm.runner import CHANGE_TIMEOUT_S
from rltui.cluster.slurm.submitting import TestVerdict, read_answer, read_test, submit_argv, variables_against
from rltui.errors import ClusterError, UsageError

WAIT_STEP_S = 2.0
"""Between two looks at a job that is being requeued."""

ACTIVE = frozenset({"running", "suspended", "completing"})
LONGEST = "Users cannot raise the limit of a running job, nor any beyond its partition's: resubmit it, or ask the site."


class SlurmClient(SlurmQuestions):
    """Also submits to the cluster and changes jobs of the user's, and no others.

    Each change looks first whose job it is and where it stands, and is told to Slurm once. Changes raise
    ``SlurmRefusedError`` where certainly nothing was done and ``ClusterError`` where nobody can tell.
    """

    def submit(self, script_path: str, *, job_name: str, comment: str, chdir: str, extra: Sequence[str] = ()) -> str:
        """Submit a batch script, once, and return the job's id.

        Args:
            script_path: Absolute path on the cluster.
            job_name: From ``marks.job_name_of``: the job is looked up by its last part where comments are not kept.
            comment: From ``marks.comment_of``.
            chdir: The job's working directory, absolute.
            extra: More options of sbatch. They win over the script's ``#SBATCH`` lines, and these over ``SBATCH_*``
                variables.

        Raises:
            SubmitRefusedError: Nothing was submitted; the message is the reason.
            SubmitUnknownError: The job may be there or not: ask ``find_by_comment``, and never submit again blindly.
        """
        argv = submit_argv(script_path, job_name=job_name, comment=comment, chdir=chdir, extra=extra)
        try:
            script = self.runner.relay.read(script_path).data.decode("utf-8", "replace")
        except ClusterError as error:
            refused = SubmitRefusedError(f"Nothing was submitted: {error.message}", error.hint)
            refused.exit_code = error.exit_code
            raise refused from error
        try:
            answer = self.runner.tell(argv, CHANGE_TIMEOUT_S, without=variables_against(script))
        except RelayError as error:
            if error.kind in ("missing", "denied", "bad-request"):
                raise SubmitRefusedError(f"sbatch cannot be started: {error.message}", error.hint) from error
            raise SubmitUnknownError(f"The answer of sbatch was lost: {error.message}", error.hint) from error
        return read_answer(answer)

    def test(self, script: str) -> TestVerdict:
        """What Slurm would do with the text of a script that is on no disk yet; see ``test_only``."""
        argv = ["sbatch", "--test-only"]
        return read_test(self.runner.tell(argv, without=variables_against(script), stdin=script.encode()))

    def test_only(self, script_path: str, extra: Sequence[str] = ()) -> TestVerdict:
        """What Slurm would do with a script, without submitting it (``sbatch --test-only``)."""
        argv = submit_argv(script_path, job_name="", comment="", chdir="", extra=[*extra, "--test-only"])
        return read_test(self.runner.tell(argv))

    def cancel(self, job_id: str, *, uuid: str = "", known: JobSnapshot | None = None) -> bool:
        """End a job; False where it has ended already, or the id is another job's than ``uuid`` or ``known`` by now."""
        return self.signal(job_id, (), uuid=uuid, known=known)

    def signal(self, job_id: str, words: Sequence[str], *, uuid: str = "", known: JobSnapshot | None = None) -> bool:
        """Run ``scancel WORDS JOB``; False as of ``cancel``."""
        return bool(self.living(job_id, uuid=uuid, known=known)) and self._tell(["scancel", *words, job_id])

    def living(self, job_id: str, *, uuid: str = "", known: JobSnapshot | None = None) -> list[JobSnapshot]:
        """A job and its parts as they stand; none where it has ended, or the id is another job's by now.

        Raises:
            SlurmRefusedError: It is somebody else's.
        """
        rows = self.queue([checked(job_id)])
        uid = self.uid()
        if known is not None and any(owner != uid or not is_same_job(known, job) for owner, job in rows):
            return []
        if uuid and any(owner != uid or is_foreign(job, uuid) for owner, job in rows):
            return []
        return [job for job in self._own(job_id, rows) if not job.has_ended]

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting."""
        self._control(job_id, "hold")

    def release(self, job_id: str) -> None:
        """Let a held job start."""
        self._control(job_id, "release")

    def _control(self, job_id: str, word: str) -> None:
        self._standing(job_id)
        if not self._tell(["scontrol", word, job_id]):
            raise _ended(job_id)

    def requeue(self, job_id: str) -> None:
        """End a running job and queue it again under the same id; an ended job is not run again."""
        # Slurm would run an ended job once more without a question, and a second checkpoint writer is no requeue
        if self._standing(job_id).state not in ACTIVE:
            raise SlurmRefusedError(
                f"Job {job_id} is not running, so it cannot be requeued.", "A pending job starts anyway."
            )
        if not self._tell(["scontrol", "requeue", job_id]):
            raise _ended(job_id)

    def requeue_without(self, job_id: str, nodes: Sequence[str], *, deadline_s: float = 120.0) -> None:
        """Queue a job again under the same id so that it keeps away from ``nodes`` too.

        Hold, wait until it is pending, exclude, release: only a pending job's list can be changed.

        Where it breaks off in between, the job is held, and calling it again goes on.
        """
        if self._standing(job_id).state in ACTIVE and not self._tell(["scontrol", "requeuehold", job_id]):
            raise _ended(job_id)
        deadline = time.monotonic() + deadline_s
        while self._standing(job_id).state != "pending":
            if time.monotonic() >= deadline:
                late = f"is not pending after {deadline_s:.0f} s; it is or will be held."
                raise SlurmUnansweredError(
                    read_trouble("", 0, "scontrol"), f"Job {job_id} was told to requeue but {late}"
                )
            time.sleep(WAIT_STEP_S)
        self.set_excluded(job_id, nodes)
        self.release(job_id)

    def set_time_limit(self, job_id: str, seconds: float) -> None:
        """Change the time limit; a running job's can only be lowered by its user."""
        try:
            limit = write_duration(seconds)
        except ValueError as error:
            raise UsageError(f"{error}.") from error
        try:
            self._update(job_id, f"TimeLimit={limit}")
        except SlurmRefusedError as error:
            if "denied" not in error.message.lower():
                raise
            raise SlurmRefusedError(error.message, LONGEST) from error

    def excluded(self, job_id: str) -> tuple[str, ...]:
        """The nodes that a job keeps away from."""
        mark = new_mark()
        argv = [
            "squeue",
            f"--jobs={checked(job_id)}",
            "--local",
            "--all",
            "--states=all",
            "--noheader",
            f"--format=%i{mark}%x{mark}",
        ]
        rows = split_records(self.runner.ask(argv), mark, 2)
        return expand(rows[0][1]) if rows else ()

    def set_excluded(self, job_id: str, nodes: Sequence[str]) -> tuple[str, ...]:
        """Let a pending job keep away from ``nodes`` too, and return all that it keeps away from now.

        Slurm replaces the list, so it is read, merged and written.
        """
        wanted = merged(self.excluded(job_id), nodes)
        self._update(job_id, f"ExcNodeList={fold(wanted)}")
        return wanted

    def _standing(self, job_id: str) -> JobSnapshot:
        """An own job that has not ended; a het job as one, which waits only where all of its components do.

        Raises:
            SlurmRefusedError: There is none with this id.
        """
        job = by_id(self._own(job_id, self.queue([checked(job_id)]))).get(job_id)
        if job is None or job.has_ended:
            raise _ended(job_id)
        return job

    def _own(self, job_id: str, rows: Sequence[tuple[str, JobSnapshot]]) -> list[JobSnapshot]:
        uid = self.uid()
        for owner, job in rows:
            if owner != uid:
                hint = "rltui changes your own jobs only."
                raise SlurmRefusedError(f"Job {job_id} is {job.user}'s, not yours.", hint)
        return [job for _, job in rows]

    def _update(self, job_id: str, change: str) -> None:
        self._standing(job_id)
        if not self._tell(["scontrol", "update", f"JobId={job_id}", change]):
            raise _ended(job_id)

    def _tell(self, argv: Sequence[str]) -> bool:
        """Whether Slurm did it; False where the job is gone."""
        answer = self.runner.tell(argv)
        if answer.rc == 0:
            return True
        trouble = read_trouble(answer.err or answer.out, answer.rc, argv[0])
        if trouble.kind == "gone":
            return False
        if trouble.nothing_done:
            raise SlurmRefusedError(f"Slurm did not do it: {trouble.sentence}.", trouble.hint)
        raise SlurmUnansweredError(trouble, f"It is unknown whether Slurm did it: {trouble.sentence}.")


def _ended(job_id: str) -> SlurmRefusedError:
    return SlurmRefusedError(f"Job {job_id} has ended, or Slurm does not know it any more.")
