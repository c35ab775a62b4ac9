"""A warm rltui that forks one that acts, for tests that kill it: ``python submit_zygote.py LAB STATE``.

Reads one JSON object a line ({"do": "submit"|"resubmit"|"replace"|"cancel", "run": …, "step": N}) and answers with the
pid of the fork, then, when that has ended, with how it ended. Before and after every question to the cluster and every
entry in the journal is a step; at the N-th the fork kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from lab import Lab
from slurm_support import SLEEPS, LabTransport, context_on, small_layout

from rltui.cluster.relay_connection import Connection
from rltui.errors import RltuiError
from rltui.runs.journal import Journal
from rltui.service.actions import cancel
from rltui.service.resubmit import resubmit
from rltui.service.submit import submit_attempt


def act(lab: Lab, state: Path, word: dict[str, Any]) -> None:
    """Do one thing as one rltui would."""
    context = context_on(LabTransport(lab), state, SLEEPS)
    layout = small_layout("slurm.options=['--hold']")
    if word["do"] == "submit":
        submit_attempt(context, word["run"], 1, layout)
    elif word["do"] == "resubmit":
        resubmit(context, context.find(word["run"]))
    elif word["do"] == "replace":
        resubmit(context, context.find(word["run"]), ("train.learning_rate=1e-7",), cancel_first=True)
    else:
        cancel(context, context.find(word["run"]))
    context.close()


class Steps:
    """Counts what is done, and ends the process before or after it.

    Args:
        last: The step at which; 0: never.
    """

    def __init__(self, last: int) -> None:
        self._left = last

    def around(self, owner: type, name: str) -> None:
        """Count the calls of a method."""
        real = getattr(owner, name)

        def counted(*arguments: Any, **keys: Any) -> Any:
            self.step()
            answer = real(*arguments, **keys)
            self.step()
            return answer

        setattr(owner, name, counted)

    def step(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Fork until the input ends."""
    lab, state = Lab.running(Path(sys.argv[1])), Path(sys.argv[2])
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code, word = 0, json.loads(line)
            steps = Steps(word["step"])
            steps.around(Connection, "finish")
            steps.around(Journal, "write")
            try:
                act(lab, state, word)
            except RltuiError:
                code = 1
            os._exit(code)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


main()
