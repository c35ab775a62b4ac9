"""Several login nodes of one cluster: the next one where one is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rltui.cluster.attention import NeedsAttentionError
from rltui.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.cluster.transport import ByteStream, Transport


class GroupTransport:
    """Opens a relay on the first of several machines that can be reached; the one that answered last is tried first.

    Each has its own host key. One that needs a person (an unknown or changed key, a refused login) is not passed over:
    the others would be asked the same, and a changed key is to be seen.

    Args:
        transports: The way to each of them.
    """

    def __init__(self, transports: Sequence[Transport]) -> None:
        self._transports = list(transports)

    @property
    def place(self) -> str:
        """The machine that answered last."""
        return self._transports[0].place

    @property
    def opened(self) -> Any:
        """How the last connection came about, where that is known."""
        return getattr(self._transports[0], "opened", None)

    def open(self) -> ByteStream:
        """Connect to the first that can be reached; see ``Transport``.

        Raises:
            NeedsAttentionError: A person has to act first.
            ClusterError: None of them can be reached.
        """
        said: list[str] = []
        for transport in tuple(self._transports):
            try:
                stream = transport.open()
            except NeedsAttentionError:
                raise
            except ClusterError as error:
                said.append(error.message)
                continue
            self._transports.remove(transport)
            self._transports.insert(0, transport)
            return stream
        places = ", ".join(transport.place for transport in self._transports)
        raise ClusterError(f"None of {places} can be reached. {' '.join(said)}"[:1000])
