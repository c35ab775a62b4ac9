"""Runs Slurm's tools through the relay: no shell, a deadline each, a clean environment, and a count of the RPCs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import Completed, RelayError
from rltui.cluster.slurm.replies import SlurmUnansweredError, Trouble, is_format_refused, read_trouble

ASK_TIMEOUT_S = 25.0
"""A healthy answer takes under a second, one from a loaded controller ten (``MessageTimeout``), and a tool whose munged
is dead hangs for 49 s; somebody is waiting for a picture."""

CHANGE_TIMEOUT_S = 60.0
"""What changes something is given the time to fail by itself: its own word on the outcome is worth more than ours."""

READ_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""For tools that only tell. Not for sbatch, which hands its environment on to the job."""

DEFAULTS_OF_USERS = (
    *(
        "SQUEUE_ACCOUNT",
        "SQUEUE_ALL",
        "SQUEUE_ARRAY",
        "SQUEUE_FORMAT",
        "SQUEUE_FORMAT2",
        "SQUEUE_LICENSES",
        "SQUEUE_LOCAL",
    ),
    *("SQUEUE_NAMES", "SQUEUE_PARTITION", "SQUEUE_PRIORITY", "SQUEUE_QOS", "SQUEUE_SIBLING", "SQUEUE_SORT"),
    *("SQUEUE_STATES", "SQUEUE_USERS", "SACCT_FORMAT", "SACCT_LOCAL", "SACCT_FEDERATION", "SACCTMGR_FORMAT"),
    *("SCONTROL_ALL", "SCONTROL_FEDERATION", "SINFO_ALL", "SINFO_FORMAT", "SINFO_PARTITION", "SINFO_SORT"),
    *("SLURM_CLUSTERS", "SQUEUE_CLUSTERS", "SACCT_CLUSTERS", "SBATCH_CLUSTERS"),
    *("SBATCH_WAIT", "SBATCH_ARRAY_INX", "SBATCH_TEST_ONLY", "SLURM_EXIT_ERROR"),
)
"""Variables by which a user's own defaults would change what is asked, and so the answer."""


def on_cluster(relay: RelayClient, argv: Sequence[str]) -> list[str]:
    """``argv``, a tool of Slurm and its words, for the profile's cluster, whatever a user's default is.

    All tools read the variable (``-M`` is the same) but sacct, seen on 22.05; sacctmgr knows all clusters.
    """
    name = relay.slurm_cluster
    if not name:
        return ["env", "-u", "SLURM_CLUSTERS", *argv]
    option = [f"--clusters={name}"] if argv[0] == "sacct" else []
    return ["env", f"SLURM_CLUSTERS={name}", argv[0], *option, *argv[1:]]


def rpcs_of(argv: Sequence[str]) -> int:
    """Calls to slurmctld that one run of a tool makes, as counted with sdiag on 22.05.

    squeue and sinfo ask for the partitions too, and without ``--local`` squeue asks for the federation; sacct and
    sacctmgr ask slurmdbd only.
    """
    if argv[0] in ("sacct", "sacctmgr"):
        return 0
    if argv[0] == "squeue":
        return 2 if "--local" in argv else 3
    return 2 if argv[0] == "sinfo" or argv[-1] in ("node", "config") else 1


class SlurmRunner:
    """Runs Slurm's tools on the relay's host. Every method may be called from any thread.

    Args:
        relay: The relay, on a host with Slurm's tools.
        clock: Epoch seconds, for the count of RPCs.
    """

    def __init__(self, relay: RelayClient, clock: Callable[[], float] = time.time) -> None:
        self._relay = relay
        self._clock = clock
        self._calls: deque[float] = deque(maxlen=10_000)

    @property
    def relay(self) -> RelayClient:
        """The relay that the tools are run through, for what else is to be done over there."""
        return self._relay

    def rpcs_per_minute(self) -> int:
        """Calls to slurmctld in the last minute."""
        now = self._clock()
        return sum(now - 60 < at <= now for at in tuple(self._calls))

    def ask(self, argv: Sequence[str], timeout_s: float = ASK_TIMEOUT_S, *, limit: int = 0) -> str:
        """Run a tool that only tells something, and return its output.

        Args:
            argv: The tool and its words.
            timeout_s: How long it may take.
            limit: Bytes of the answer, where 4 MiB may not be enough.

        Raises:
            SlurmUnansweredError: It failed; ``trouble`` says how.
        """
        answer = self._run(argv, READ_ENVIRONMENT, timeout_s, idempotent=True, limit=limit)
        if answer.rc or is_format_refused(answer.err):
            raise SlurmUnansweredError(read_trouble(answer.err or answer.out, answer.rc, argv[0]))
        if answer.truncated:
            raise SlurmUnansweredError(
                Trouble("unknown", f"{argv[0]} answered with more than {(limit >> 20) or 4} MiB")
            )
        return answer.out

    def tell(
        self,
        argv: Sequence[str],
        timeout_s: float = CHANGE_TIMEOUT_S,
        *,
        without: Sequence[str] = (),
        stdin: bytes = b"",
    ) -> Completed:
        """Run a tool that changes something, once; whoever calls reads the answer.

        Args:
            argv: The tool and its words.
            timeout_s: How long it may take.
            without: Variables that it is not to see.
            stdin: Its standard input.

        Raises:
            RelayError: It is unknown whether it ran (kinds ``lost`` and ``timeout``), or it could not be started.
        """
        return self._run(argv, {}, timeout_s, idempotent=False, without=without, stdin=stdin)

    def _run(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        timeout_s: float,
        *,
        idempotent: bool,
        without: Sequence[str] = (),
        limit: int = 0,
        stdin: bytes = b"",
    ) -> Completed:
        cleared = [word for name in dict.fromkeys([*DEFAULTS_OF_USERS, *without]) for word in ("-u", name)]
        self._calls.extend([self._clock()] * rpcs_of(argv))
        try:
            # the relay adds variables to its own and takes none away, so env does that over there
            words = ["env", *cleared, *on_cluster(self._relay, argv)[1:]]
            given = {"stdin": stdin} if stdin else {}
            return self._relay.run(words, env=env, timeout_s=timeout_s, idempotent=idempotent, limit=limit, **given)
        except RelayError as error:
            if error.kind == "timeout" and idempotent:
                trouble = Trouble(
                    "controller", f"{argv[0]} did not answer within {timeout_s:g} s", "Wait: it is asked again."
                )
                raise SlurmUnansweredError(trouble) from error
            raise
