"""Searches of logs and of samples, one of each at a time, told piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.message import Message

from rltui.threads import RequestThread
from rltui.tui import messages
from rltui.watch.log_search import NEWEST_HITS, LogQuery
from rltui.watch.samples import SampleQuery, SamplesFound

if TYPE_CHECKING:
    from rltui.service.live_cockpit import LiveCockpit
    from rltui.watch.snapshots import RunIdentity


class Searches:
    """Searches what a run has written, in a thread of its own for logs and for samples.

    Args:
        cockpit: The services.
        post: Hands a message to the application.
        answer: Posts what a call returns, or that it failed; takes what was asked in words, and the call.
    """

    def __init__(
        self,
        cockpit: LiveCockpit,
        post: Callable[[Message], object],
        answer: Callable[[str, Callable[[], Message]], None],
    ) -> None:
        self._cockpit = cockpit
        self._post = post
        self._answer = answer
        self._logs = RequestThread("rltui-log-searches", newest_only=True)
        self._samples = RequestThread("rltui-sample-searches", newest_only=True)
        self._in_logs: LogQuery | None = None
        self._in_samples: SampleQuery | None = None

    def end(self, *, logs: bool = True, samples: bool = True) -> None:
        """Search no more; what is found meanwhile is not shown."""
        self._in_logs = None if logs else self._in_logs
        self._in_samples = None if samples else self._in_samples

    def log(self, run: RunIdentity, name: str, query: LogQuery) -> None:
        """Search whole logs, and no others any more: :class:`~rltui.tui.messages.LogSearched` tells of each piece."""
        self._in_logs = query

        def call() -> messages.LogSearched:
            found: list[messages.FoundLine] = []
            share = 0.0
            for piece in self._cockpit.search_log(run, name, query):
                found = messages.newest_lines(found, piece, NEWEST_HITS)
                share = min(0.99, piece.offset / max(1, piece.size))
                if self._in_logs is not query:  # another one, which may be for the same words
                    break
                self._post(messages.LogSearched(run, name, query, tuple(found), share))
            else:
                share = 1.0
            return messages.LogSearched(run, name, query, tuple(found), share)

        self._logs.ask(lambda: self._answer(f"search {name or 'the log'}", call))

    def samples(self, run: RunIdentity, query: SampleQuery) -> None:
        """Search a run's samples, and no others any more: :class:`~rltui.tui.messages.SamplesArrived`."""
        self._in_samples = query

        def call() -> messages.SamplesArrived:
            last = None
            for found in self._cockpit.samples(run, query):
                if last is not None:
                    self._post(messages.SamplesArrived(run, query, last))
                last = found
                if self._in_samples is not query:
                    break
            return messages.SamplesArrived(run, query, last or SamplesFound())

        self._samples.ask(lambda: self._answer(messages.SEARCH_SAMPLES, call))
