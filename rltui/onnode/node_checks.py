"""The first step of a job: every node is asked what it has, all at once, before any GPU is used."""

import os
import secrets
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Tuple

from rltui.onnode import node_report, rundir
from rltui.onnode.allocation import Allocation, end_step, start_step_on
from rltui.onnode.node_network import host

CHECK_S = 100.0
"""Within two minutes of the start the verdict on the nodes is there; these are for the nodes, the rest for srun."""

SHARED_DISK_S = 5.0
"""How long a file written on one node may take to be seen on another (attribute caches of network file systems)."""

POLL_S = 0.2

QUESTION = "question.json"


def check_nodes(
    attempt: str, allocation: Allocation, deadline_s: float, requested: Callable[[], bool]
) -> Dict[str, Any]:
    """Run the check on all nodes and put what they say into ``preflight.json``, which is returned.

    Args:
        attempt: The attempt's directory.
        allocation: The job.
        deadline_s: Nodes that have not answered by then are bad.
        requested: Whether the attempt is to end; then the answers so far are all there is.
    """
    folder = os.path.join(attempt, "preflight")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    question = {"question": secrets.token_hex(8)}
    rundir.write_json(os.path.join(folder, QUESTION), question)
    asked_at = time.time()
    output, errors = _ask(attempt, allocation, deadline_s, requested)
    answered_at = time.time()
    reports = node_report.parse(output)
    _compare_answers(folder, question, reports)
    merged = node_report.merge(allocation.nodes, reports, errors, asked_at, answered_at)
    rundir.write_json(os.path.join(attempt, rundir.PREFLIGHT), merged)
    return merged


def note_other_environment(attempt: str, merged: Dict[str, Any]) -> None:
    """Note where the run goes on with other versions than before: its numbers may change with them."""
    for number in range(int(os.path.basename(attempt)) - 1, 0, -1):
        folder = rundir.attempt_folder(rundir.run_of(attempt), number)
        before = rundir.read_json(os.path.join(folder, rundir.PREFLIGHT))
        if before is not None:
            differences = node_report.changed_since(before, merged)
            if differences:
                text = "another environment than in attempt %d: %s" % (number, differences)
                rundir.log_event(attempt, "warning", text)
            return


def _ask(attempt: str, allocation: Allocation, deadline_s: float, requested: Callable[[], bool]) -> Tuple[str, str]:
    """Run the check on all nodes; what the step said on stdout and stderr."""
    nodes = allocation.nodes
    argv = [sys.executable, "-m", "rltui.onnode.node_check", "--attempt", attempt]
    argv += ["--job", str(allocation.job_id), "--peers", ",".join(nodes)]
    argv += ["--interface", os.environ.get("RLTUI_NETWORK_INTERFACE", "")]
    names = [os.path.join(attempt, "preflight", name) for name in ("step.out", "step.err")]
    with open(names[0], "wb") as out, open(names[1], "wb") as err:
        step = start_step_on(allocation, nodes, lambda part: [*argv, "--part", str(part)], subprocess.DEVNULL, out, err)
    deadline, answered = time.monotonic() + deadline_s, -1
    while step.poll() is None and time.monotonic() < deadline and not requested():
        before, answered = answered, len(node_report.parse(rundir.read_tail(names[0])))
        if answered != before:
            rundir.write_stage(attempt, "preflight", "%d/%d nodes" % (answered, len(nodes)))
        if answered == len(nodes):
            break
        time.sleep(POLL_S)
    # once all have spoken srun only clears away; a node that has not spoken by now hangs, and grace helps nobody
    end_step(step, 3.0 if answered == len(nodes) else 0.0)
    return rundir.read_tail(names[0]), rundir.read_tail(names[1])


def _compare_answers(folder: str, question: Dict[str, str], reports: Dict[str, Dict[str, Any]]) -> None:
    """Note nodes whose files are not seen here: their run directory is another one."""
    deadline = time.monotonic() + SHARED_DISK_S
    unseen = [node for node in reports if not reports[node]["problems"]]
    while unseen:
        os.listdir(folder)  # a look at the folder is what makes network file systems ask again
        unseen = [n for n in unseen if rundir.read_json(os.path.join(folder, "answer-%s.json" % n)) != question]
        if not unseen or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    for node in unseen:
        reports[node]["problems"].append("what it writes into the run directory is not seen on %s" % host())
