"""Asking an HTTP server that a run has on its node's loopback, politely and without ever failing."""

from __future__ import annotations

from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError
from rltui.threads import backed_off_s

INTERVAL_S = 1.0
SLOWEST_S = 30.0
TIMEOUT_S = 3.0


class Endpoint(Struct, frozen=True):
    """Where a server of the run listens, and the token it wants."""

    url: str
    token: str = ""
    host: str = ""
    """The node on whose loopback it listens; empty: the relay's."""
    jobs: tuple[str, ...] | None = None
    """Ray's ids of the run's jobs, on a Ray that has others' too; None: all that is there is the run's."""

    def is_on(self, host: str) -> bool:
        """Whether a relay on ``host`` can ask it."""
        # Slurm calls a node by its short name, gethostname() of many sites by its full one
        return not self.host or self.host.split(".")[0] == host.split(".")[0]


class Reply(Struct, frozen=True):
    """What a server said; ``problem`` says why it said nothing of use."""

    body: bytes = b""
    status: int = 0
    problem: str = ""


def pause_s(failures: int) -> float:
    """Seconds between two questions: one, and twice that for each failure in a row, for a server that is not there."""
    return backed_off_s(INTERVAL_S, failures, SLOWEST_S)


def get(client: RelayClient, endpoint: Endpoint, path: str) -> Reply:
    """Ask for ``path``; whatever goes wrong is the reply's ``problem``, with no token in it."""
    try:
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        answer = client.http(endpoint.url.rstrip("/") + path, headers=headers, timeout_s=TIMEOUT_S)
    except ClusterError as error:
        return Reply(problem=error.message)
    if answer.status == 200:
        return Reply(answer.body, 200)
    reasons = {401: "the token was refused", 403: "the token was refused", 404: "it does not know this request"}
    because = reasons.get(answer.status, "it failed")
    return Reply(status=answer.status, problem=f"{endpoint.url} answered {answer.status}: {because}.")


class Throttle:
    """Says when a source may be asked again."""

    def __init__(self) -> None:
        self._next = 0.0
        self._failures = 0

    def is_due(self, now: float) -> bool:
        """Whether the source may be asked at ``now`` (monotonic seconds)."""
        return now >= self._next

    def asked(self, now: float, failed: bool) -> None:
        """Note that it was asked at ``now``, and whether that failed."""
        self._failures = self._failures + 1 if failed else 0
        self._next = now + pause_s(self._failures)
