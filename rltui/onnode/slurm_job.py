"""The driver of a Slurm job: checks the nodes, brings Ray up on them, trains, and leaves nothing behind.

It is the batch script's process (the script ends in ``exec``), so Slurm's signals come here, and it runs on the first
node, which is Ray's head. What it does for the attempt itself is what the supervisor of a local run does.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

from rltui.onnode import (
    chain,
    container,
    hands_off,
    keep_away,
    lost_nodes,
    node_evidence,
    node_report,
    pass_on,
    ray_nodes,
    rundir,
    script_resume,
)
from rltui.onnode.allocation import (
    CAUSES,
    NODE_FAILURE,
    NOT_THE_RUNS,
    PREEMPTION,
    Allocation,
    NoAllocationError,
    cause_of_signal,
    end_time,
    is_being_preempted,
    is_requeued_by_slurm,
    kill_wait_s,
    left_s,
    nodes_not_answering,
    preempts_by_requeue,
    read_allocation,
    requeue,
    shown,
)
from rltui.onnode.allocation_step import CancelFile, end_of_allocation
from rltui.onnode.attempt_runner import BREATH_S, POLL_S, AttemptRunner, Request, Verdict
from rltui.onnode.node_check import raise_open_files
from rltui.onnode.node_checks import CHECK_S, check_nodes, note_other_environment
from rltui.onnode.node_network import host
from rltui.onnode.queue_ahead import QueueAhead
from rltui.onnode.ray_agents import Agents, ray_shares, rendezvous_s
from rltui.onnode.ray_head import RayHead
from rltui.onnode.ray_process import LOOPBACK, RayFailedError, RaySpec, ray_folder
from rltui.onnode.requeue import folder_of_start, stays
from rltui.onnode.script_exports import script_place

KILL_MARGIN_S = 45.0
"""Before the time limit everything is over: Slurm gives what is left 30 s and no more."""

CLEAN_UP_S = 12.0
"""Of what Slurm leaves after SIGTERM: for ending Ray on all nodes."""

EARLY_S = 90.0
"""Slurm's warning may come a minute early; one that comes earlier is not about the time limit."""

LATE_S = 30.0
"""As late as Slurm's warning may come: it looks at clocks twice a minute. A step of an allocation is not warned."""

SLURM_NOTICES_S = 330.0
"""Slurm gives up a node that does not answer after SlurmdTimeout, 300 s by default."""


class SlurmJob(AttemptRunner):
    """One start of a job.

    Args:
        attempt: The attempt's directory.
        allocation: What Slurm gave.
        lead_s: How long before the time limit the trainer is to save and end.
        output: The file of the batch script's own output.
    """

    notes_servers = True

    def __init__(self, attempt: str, allocation: Allocation, lead_s: float, output: str) -> None:
        super().__init__(attempt)
        self.allocation, self.lead_s, self.output = allocation, lead_s, output
        self.end_at = allocation.end_at
        self.is_step = bool(self.job.get("allocation"))
        self._cancel_file = CancelFile(self.attempt)
        self.addresses: Dict[str, str] = {}
        self.bad_nodes: Dict[str, str] = {}
        self.agents: Optional[Agents] = None
        self._output_began = os.path.getsize(output) if os.path.exists(output) else 0
        self.kill_wait_s = kill_wait_s()
        self._problem_since = 0.0
        self._slurm_kills = False
        self._slurm_cause = ""
        self._kept_away: Optional[List[str]] = None
        self._queue_ahead = QueueAhead(self.attempt)

    def introduce(self) -> None:
        """Write down which job this is."""
        # take_signals has let it mean the end; from Slurm it is the warning (--signal=B:USR2)
        signal.signal(signal.SIGUSR2, self.on_warning)
        # no start time: this pid means nothing on the machine where rltui looks for supervisors
        who: Dict[str, Any] = {"schema": rundir.SCHEMA, "pid": os.getpid(), "host": host(), "uuid": self.uuid}
        who["signals"] = pass_on.NAMES
        rundir.write_json(os.path.join(self.attempt, rundir.SUPERVISOR), who)
        given = self.allocation
        record = {**who, "job_id": given.job_id, "restart": given.restart, "nodes": given.nodes, "head": host()}
        record.update(lead_s=self.lead_s, end_at=self.end_at, output=self.output, started_at=time.time())
        rundir.write_json(os.path.join(self.attempt, rundir.SLURM), record)
        raise_open_files()

    def preflight(self) -> None:
        """Ask every node what it has, all at once.

        Raises:
            EndedError: A node is bad; the text names it.
        """
        usual_s = CHECK_S if container.read() is None else container.START_S
        deadline_s = self.job["deadlines_s"].get("preflight", usual_s)
        merged = check_nodes(self.attempt, self.allocation, deadline_s, self.requested)
        self.raise_if_requested()
        for node, report in merged["nodes"].items():
            for warning in report["warnings"]:
                rundir.log_event(self.attempt, "warning", "%s: %s" % (node, warning), node=node)
        self.bad_nodes = merged["bad_nodes"]
        if self.bad_nodes:
            raise rundir.EndedError(node_report.sentence(self.bad_nodes, len(merged["nodes"])))
        note_other_environment(self.attempt, merged)
        self.addresses = {node: report["address"] for node, report in merged["nodes"].items()}

    def start_ray(self) -> None:
        """Start the head here and a worker on each other node, and wait until Ray has them all.

        Raises:
            RayFailedError: A node is missing at the deadline, or gave up; the text names it.
        """
        nodes, shares = self.allocation.nodes, ray_shares(self.job, self.allocation)
        alone = len(nodes) == 1
        rundir.write_stage(self.attempt, "ray-up", "0/%d nodes" % len(nodes))
        if not alone:
            ray_nodes.use_interface(self.environment, self.addresses[host()])
        script = script_place(self.attempt, self.environment)
        if script is not None and script.untold:
            text = "Ray's workers do not see what only the script's shell can tell: %s" % ", ".join(script.untold)
            rundir.log_event(self.attempt, "warning", text + "; the profile's env or env_file reaches them")
        spec = RaySpec(
            self.job["argv"][0],
            self.attempt,
            self.uuid,
            shares[0]["cpus"],
            shares[0]["gpus"],
            address=LOOPBACK if alone else self.addresses[host()],
            folder=ray_folder(self.uuid),
            job=0 if alone else self.allocation.job_id,
            script=script,
        )
        self.ray = RayHead(spec, self.environment)
        self.start_guard(self.ray.folder)
        self.ray.start(self.job["deadlines_s"]["ray_up"], self.requested)
        self.raise_if_requested()
        if not alone:
            self._join_nodes(self.ray, shares)
        rundir.write_stage(self.attempt, "ray-up", "%d/%d nodes" % (len(nodes), len(nodes)))

    def _join_nodes(self, head: RayHead, shares: List[Dict[str, int]]) -> None:
        self.agents = Agents(self.attempt, self.allocation, head, [share["cpus"] for share in shares])
        of_part = [{"CPU": float(share["cpus"]), "GPU": float(share["gpus"])} for share in shares]
        wanted = {node: of_part[self.allocation.part_of(node)] for node in self.addresses}
        deadlines_s = self.job["deadlines_s"]
        deadline_s = deadlines_s.get("rendezvous", rendezvous_s(len(self.addresses), deadlines_s["ray_up"]))
        try:
            self.agents.await_all(self.addresses, wanted, deadline_s, self.requested)
        except RayFailedError:
            self.bad_nodes = self.agents.failed
            if self.agents.lost:
                self._await_slurm()
                self.raise_if_requested()
            raise
        finally:
            self.bad_nodes = self.agents.failed
        self.raise_if_requested()

    def _await_slurm(self) -> None:
        """Let Slurm say first that it lost a node: it does not start a job again that has ended by itself."""
        if not self.is_step and is_requeued_by_slurm(str(self.allocation.job_id)):
            deadline = time.monotonic() + SLURM_NOTICES_S
            while not self.requested() and time.monotonic() < deadline:
                time.sleep(POLL_S)

    def ray_problem(self) -> str:
        """Why training cannot go on; said only after two seconds, since a cancelled job loses its steps first."""
        problem = super().ray_problem() or self._agents_problem()
        if not problem:
            self._problem_since = 0.0
            return ""
        self._problem_since = self._problem_since or time.monotonic()
        return problem if time.monotonic() - self._problem_since > 2.0 else ""

    def _agents_problem(self) -> str:
        if self.agents is None:
            return ""
        problem = self.agents.problem()
        if not self._slurm_kills:
            self.bad_nodes = self.agents.failed
        elif self._slurm_cause == NODE_FAILURE:
            # what was named stays so; for other causes none is to blame: Ray ends by the signal that all of a job get
            self.bad_nodes = self.bad_nodes or self.agents.failed
        return problem

    # Slurm's signals

    def on_warning(self, *_: Any) -> None:
        """The handler of SIGUSR2: the time limit or a preemption comes near, or somebody wants it to save and end."""
        if self.request is not None:
            return
        job = shown(str(self.allocation.job_id))
        is_preempted = not self.is_step and is_being_preempted(job)
        if is_preempted or left_s(job, self.end_at, 0.0) > self.lead_s + EARLY_S:
            # the limit may have been lowered while the job ran, and a preemption sets it to the end of its GraceTime
            self.end_at = end_time(job) or self.end_at
        left = left_s(job, self.end_at, self.lead_s)
        request = Request("time-limit", "ended before the time limit was reached", max(10.0, left - KILL_MARGIN_S))
        if is_preempted:
            self._slurm_cause, request = PREEMPTION, Request(*CAUSES[PREEMPTION], request.grace_s)
        elif left > self.lead_s + EARLY_S:
            grace_s = max(self.lead_s, self.job["deadlines_s"]["grace"])
            request = Request("cancelled", "asked to save and end by SIGUSR2", grace_s)
        self.request = self.request or request  # SIGTERM may have come while Slurm was asked, and knows more

    def on_cancel(self, *_: Any) -> None:
        """The handler of SIGTERM: Slurm ends the job, for one of several reasons, or the user does."""
        grace_s = float(self.job["deadlines_s"]["grace"])
        cause = cause_of_signal(rundir.read_tail(self.output, self._output_began), self.allocation.job_id)
        outcome, reason = CAUSES.get(cause or "", ("cancelled", "ended by Slurm"))
        if self.is_step and not cause:
            cause, (outcome, reason) = "", end_of_allocation(self.allocation.job_id, self.end_at)
        if cause is not None:
            self._slurm_kills, self._slurm_cause = True, cause
            grace_s = max(1.0, min(grace_s, self.kill_wait_s - CLEAN_UP_S))
            if self.ray is not None:  # Slurm signals its processes too, and without them nothing can be saved
                grace_s = min(grace_s, BREATH_S)
        # of a preemption without GraceTime the warning, which comes just before, cannot be told from the time limit's
        if self.request is not None and self.request.outcome == "time-limit" and cause != PREEMPTION:
            outcome, reason = self.request.outcome, self.request.reason
        if cause == NODE_FAILURE:
            reason = self._name_failed_nodes() or reason
        self.request = Request(outcome, reason, grace_s)

    def requested(self) -> bool:
        """Whether the attempt is to end: in somebody's allocation a file asks for it."""
        if self.is_step and self.request is None and self._cancel_file.is_there():
            super().on_cancel()
        return super().requested()

    def _name_failed_nodes(self) -> str:
        """Note which nodes Slurm ended the job for; returns what is to be said of them."""
        lost = lost_nodes.lost_here(self.attempt, self.allocation.nodes) or sorted(self.bad_nodes)
        self.bad_nodes = {**self.bad_nodes, **dict.fromkeys(lost, node_evidence.NODE_FAILURE)}
        return "%s on %s" % (node_evidence.NODE_FAILURE, ", ".join(lost)) if lost else ""

    def in_a_hurry(self) -> bool:
        """Whether Slurm kills this process soon: after KillWait, which may be too short for the clean-up."""
        return self._slurm_kills

    @property
    def decision_s(self) -> Optional[float]:
        """The job's processes end with this one, so the decision is waited for."""
        return hands_off.DECISION_S

    def comes_again(self) -> bool:
        """Whether Slurm ended this start only to make another one."""
        if self.is_step or (self._slurm_cause == PREEMPTION and not preempts_by_requeue()):
            return False
        return self._slurm_cause in NOT_THE_RUNS and is_requeued_by_slurm(str(self.allocation.job_id))

    def _attempt(self) -> Verdict:
        verdict = super()._attempt()
        # A GraceTime without the warning begins with SIGTERM for all steps, so for Ray on all nodes but this one.
        is_unexplained = verdict.outcome == "failed" and not self._slurm_cause and not self.is_step
        if is_unexplained and is_being_preempted(shown(str(self.allocation.job_id))):
            self._slurm_cause, self.bad_nodes = PREEMPTION, {}
            verdict = Verdict("cancelled", verdict.code, self.tell(Request(*CAUSES[PREEMPTION], 0.0)))
        return verdict

    def leave(self) -> None:
        """Be queued again where this start has left for another job in time: Slurm queues only what it had to end."""
        if self._slurm_cause == PREEMPTION and not self._slurm_kills and self.comes_again():
            requeue(str(self.allocation.job_id))

    def tell(self, request: Request) -> str:
        """What ``end.json`` says of a request that the trainer has heeded: also, from where the run can go on."""
        return "; ".join(filter(None, (request.reason, script_resume.where_saved(self.attempt))))

    def tick(self) -> None:
        """Watch the clock too: a site may send no warning, or none to this shell."""
        self.requested()
        if self.request is None and self.end_at is not None:
            self._queue_ahead.tick(self.end_at - self.lead_s)
            if time.time() > self.end_at - self.lead_s + LATE_S * (not self.is_step):
                self.end_at = end_time(shown(str(self.allocation.job_id))) or self.end_at
                if time.time() > self.end_at - self.lead_s:
                    self.on_warning()

    # the end

    def clean_up(self) -> None:
        """End what is on this node and on the others, at the same time: Slurm may not leave long for it."""
        node_evidence.remember(self.attempt, self.allocation.nodes, self.bad_nodes, time.time())
        with contextlib.suppress(OSError):  # a full disk keeps no note, and no Ray on the nodes for that
            self._after_node_failure()  # first: Slurm may not leave time for all that follows
        self.end_server_notes()
        if self.agents is not None:
            self.agents.tell_to_stop()
        super().clean_up()
        if self.agents is not None:
            self.agents.wait()
        with contextlib.suppress(OSError):
            self._after_silence(self.agents.silent() if self.agents is not None else [])
            self._after_node_failure()

    def _after_silence(self, silent: List[str]) -> None:
        """Await Slurm's word where a trainer failed and nodes do not answer any more, if nobody else starts it."""
        has_failed = self.trainer is not None and self.trainer.returncode != 0
        if silent and has_failed and not (self.requested() or self.superseded or hands_off.is_on(self.attempt)):
            words = "%s: no answer; waiting for Slurm to start the job again without it" % ", ".join(silent)
            rundir.log_event(self.attempt, "warning", words)
            self._await_slurm()

    def _after_node_failure(self) -> None:
        """Name the nodes that Slurm lost, which srun does last, and let the job's next start keep away from them."""
        if self._slurm_cause != NODE_FAILURE or self._kept_away is not None:
            return
        if not self._name_failed_nodes():
            self.bad_nodes = dict.fromkeys(nodes_not_answering(self.allocation.nodes), node_evidence.NODE_FAILURE)
        node_evidence.remember(self.attempt, self.allocation.nodes, self.bad_nodes, time.time())
        if self.bad_nodes and self.comes_again():
            self._kept_away = keep_away.keep_away(self.attempt, self.allocation, self.bad_nodes)
        end = rundir.read_json(os.path.join(self.attempt, rundir.END))
        if end is not None:  # written before the clean-up, as Slurm may have left no time for more
            named = {**end, **self.end_details(), "reason": self._named(str(end.get("reason")))}
            rundir.write_json(os.path.join(self.attempt, rundir.END), named)

    def _named(self, reason: str) -> str:
        return lost_nodes.put_first(reason, self.bad_nodes) if self._slurm_cause == NODE_FAILURE else reason

    def _end(self, verdict: Verdict) -> "Optional[subprocess.Popen[bytes]]":
        return super()._end(verdict._replace(reason=self._named(verdict.reason)))

    def end_details(self) -> Dict[str, Any]:
        """Which nodes are to blame, for ``rltui resubmit --exclude``."""
        details: Dict[str, Any] = {"job_id": self.allocation.job_id, "restart": self.allocation.restart}
        if self._slurm_cause:
            details["slurm"] = self._slurm_cause
        if self._kept_away:
            details[keep_away.KEPT_AWAY] = self._kept_away
        return {**details, "bad_nodes": self.bad_nodes} if self.bad_nodes else details

    def exit_code(self, verdict: Verdict) -> int:
        """The trainer's exit code where it has one, so that Slurm's accounting tells the same story."""
        if verdict.code is None:
            return 128 + signal.SIGTERM if verdict.outcome == "cancelled" else 1
        return verdict.code if verdict.code >= 0 else 128 - verdict.code


def main() -> int:
    """Entry point: ``python -m rltui.onnode.slurm_job --attempt DIR``, in a batch script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt that was submitted")
    parser.add_argument("--lead-s", type=float, default=600.0, help="seconds before the time limit to save at")
    options = parser.parse_args()
    rundir.keep_private(options.attempt)
    submitted = os.path.abspath(options.attempt)
    try:
        allocation = read_allocation(dict(os.environ), host())
    except NoAllocationError as error:
        rundir.write_end(submitted, "failed", 1, str(error))
        sys.stderr.write("rltui: %s\n" % error)
        return 1
    output = os.path.join(submitted, "slurm-%d.out" % allocation.job_id)
    attempt = folder_of_start(submitted, allocation.job_id, allocation.restart)
    if (attempt != submitted and not stays(attempt, allocation)) or not chain.goes_on(attempt):
        return 0
    driver = SlurmJob(attempt, allocation, options.lead_s, output)
    code = driver.run()
    driver.leave()
    return code


if __name__ == "__main__":
    sys.exit(main())
