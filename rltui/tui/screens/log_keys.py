"""What the keys of an open run do with its logs: choose one, follow it, search it, move it sideways."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partialmethod

from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.tui.messages import FoundLine, LogPartFetched, LogSearched
from rltui.tui.picking import PickItem
from rltui.tui.screens.base import CockpitScreen, Part
from rltui.tui.screens.run_tabs import NUMBERS, Tabs
from rltui.tui.views.actors import own_log
from rltui.tui.widgets.log_pane import NOTHING, LogPane
from rltui.watch.log_search import NEWEST_HITS, LogQuery, read_query
from rltui.watch.owners import ActorSnapshot
from rltui.watch.snapshots import ALL_LOGS, LogFile, LogPart


class LogKeys(Part):
    """What the keys of the log do.

    Args:
        screen: The run's.
        tabs: Have the log's pane.
        files: Gives the logs that the run has.

    Attributes:
        log_name: Which log is wanted, as in ``LogSnapshot``.
    """

    def __init__(self, screen: CockpitScreen, tabs: Tabs, files: Callable[[], tuple[LogFile, ...]]) -> None:
        super().__init__(screen)
        self._tabs, self._files = tabs, files
        self.log_name = ""
        self._wanted_part: tuple[str, int] | None = None
        self._wanted_query = NOTHING
        self._whole: tuple[FoundLine, ...] | None = None
        self._here = 0
        self._step_wanted: int | None = None

    def in_log(self, act: Callable[[LogPane], object]) -> None:
        """Do something with the log's pane, if it was opened."""
        if self._tabs.log_pane is not None:
            act(self._tabs.log_pane)

    def do_choose_log(self) -> None:
        """Choose which log is shown."""
        from rltui.tui.screens.pick import PickScreen

        def chosen(ids: tuple[str, ...] | None) -> None:
            if ids:
                self.in_log(lambda pane: pane.leave_part())
                if ids[0] != self.log_name:
                    self._forget_hits()
                self._watch(ids[0])

        self._screen.app.push_screen(PickScreen("which log", log_items(self._files(), self.log_name)), chosen)

    def _watch(self, name: str) -> None:
        self.log_name = name
        self.cockpit.controller.watch_log(name)

    def do_whole(self) -> None:
        """Show the log of the actor under the cursor; what it does on other tabs, their panes know."""
        if self._tabs.actor is not None:
            self._open_actor(self._tabs.actor)

    def _open_actor(self, actor: ActorSnapshot) -> None:
        """Show the log of an actor's process: Ray's own, else its lines in the attempt's output, to go through."""
        name = own_log(actor, self._files())
        self._watch(name)
        self._tabs.open(NUMBERS["logs"])
        self.in_log(lambda pane: pane.leave_part())
        if name:
            self.clear()
        elif actor.pid:
            self.search(rf"re:\(.*\bpid={actor.pid}\b")
            self.cockpit.say(f"Ray's log of pid {actor.pid} is not here: n and N go to what the output has of it")

    # --- one line of a log, with what is around it

    def open_line(self, name: str, line: int, offset: int | None = None, query: LogQuery = NOTHING) -> None:
        """Open the logs at a line; it is shown when it was read.

        Args:
            name: The log.
            line: Its number.
            offset: Where it begins, if that is known.
            query: What it was found by.
        """
        self._wanted_part, self._wanted_query = (name, line), query
        self.cockpit.controller.ask_log_part(self._identity, name, line, offset)
        self._tabs.open(NUMBERS["logs"])
        self.expect()

    def expect(self) -> None:
        """Say in the pane which line is being read."""
        if (wanted := self._wanted_part) is not None:
            self.in_log(lambda pane: pane.expect(*wanted))

    def _show_line(self, part: LogPart) -> None:
        if (part.name, part.line) == self._wanted_part:
            self._wanted_part = None
            self._tabs.open(NUMBERS["logs"])
            self.in_log(lambda pane: pane.show_part(part, self._wanted_query))

    # --- scrolling beyond the lines that are there

    def read_on(self, step: int) -> None:
        """Ask for the lines before the first (-1) or behind the last (1) one."""
        pane = self._tabs.log_pane
        if pane is None:
            return
        name = pane.part.name if pane.part is not None else self.log_name
        place = None if pane.part is None else pane.part.top if step < 0 else pane.part.bottom
        self._ask_piece(step, name, place)

    def _ask_piece(self, step: int, name: str, place: Mapping[str, int] | None, at: float | None = None) -> None:
        self._step_wanted = step
        self.in_log(lambda pane: pane.expect(name))
        self.cockpit.controller.ask_log_piece(self._identity, name, place, at)

    def _take_piece(self, part: LogPart) -> None:
        """Show the lines that were asked for; where there are none behind the last one, the end of the log."""
        pane, step = self._tabs.log_pane, self._step_wanted
        if pane is None or step is None:
            return
        self._step_wanted = None
        if step > 0 and part.here >= len(part.lines):
            pane.leave_part()
        elif step < 0 and part.here == 0:
            pane.expect_nothing()
            self.cockpit.say("this is the first line")
        else:
            pane.show_piece(part, step, frozenset((hit.log, hit.offset) for hit in self._whole or ()))

    # --- searching, in the lines that are there and then in all of the log

    def typed(self, text: str) -> None:
        """Mark what is typed as long as it can be read."""
        with contextlib.suppress(UsageError):
            query = read_query(text)
            self.in_log(lambda pane: pane.search(query) if pane.sought != query else None)

    def search(self, text: str) -> str:
        """Search for what was typed; where the lines that are there are not all of the log, search that too.

        Returns:
            Why it cannot be searched; empty where it can.
        """
        pane = self._tabs.log_pane
        if pane is None:
            return ""
        try:
            query = read_query(text)
        except UsageError as error:
            return error.in_one_line
        here = pane.search(query)
        self._whole, self._here = None, here
        if query.pattern and pane.is_piece:
            pane.tell("searching")
            self.cockpit.controller.searches.log(self._identity, self._log, query)
        return ""

    def clear(self) -> None:
        """End the search, and show the log without its marks."""
        self._forget_hits()
        self.in_log(lambda pane: pane.search(read_query("")))

    def _forget_hits(self) -> None:
        """What was found in all of a log, or is still being found there, is nothing of another."""
        self._whole = None
        self.cockpit.controller.searches.end(samples=False)
        self.in_log(lambda pane: pane.tell(""))

    @property
    def _log(self) -> str:
        """The log that is searched as a whole, or all."""
        pane = self._tabs.log_pane
        if pane is not None and pane.part is not None:
            return pane.part.name
        return self.log_name or rundir.OUT_LOG

    def receive(self, message: LogPartFetched | LogSearched) -> None:
        """Take lines that were asked for, or what was found in all of the log."""
        if isinstance(message, LogSearched):
            self._take_hits(message)
        elif message.part.line:
            self._show_line(message.part)
        else:
            self._take_piece(message.part)

    def _take_hits(self, message: LogSearched) -> None:
        """Where the lines that are there have no hit, show the newest one."""
        pane = self._tabs.log_pane
        if pane is None or message.query != pane.sought or message.name != self._log:
            return
        found = len(message.hits)
        count = f"the newest {found}" if found == NEWEST_HITS else str(found)
        if message.share < 1.0:  # the newest hits come last
            pane.tell(f"{count} in {100 * message.share:.0f} %")
            return
        self._whole = message.hits
        pane.tell(f"{count} in all")
        if found and not self._here and pane.hit is None:
            self._show(-1)

    def _step(self, step: int) -> None:
        pane = self._tabs.log_pane
        if pane is None or pane.step(step, around=not self._whole):
            return
        hits, part = self._whole or (), pane.part
        if part is None:
            self._show(0 if step > 0 else max(-len(hits), -1 - self._here))
        elif step > 0:
            behind = (place for place, hit in enumerate(hits) if self._is_behind(hit, part))
            self._show(next(behind, len(hits)))
        else:
            before = (place for place in range(len(hits) - 1, -1, -1) if self._is_before(hits[place], part))
            self._show(next(before, -1))

    do_next_hit = partialmethod(_step, 1)
    do_previous_hit = partialmethod(_step, -1)

    @staticmethod
    def _is_behind(hit: FoundLine, part: LogPart) -> bool:
        if part.line:
            return hit.line >= part.first_line + len(part.lines)
        return hit.offset >= part.bottom.get(hit.log, 0)

    @staticmethod
    def _is_before(hit: FoundLine, part: LogPart) -> bool:
        return hit.line < part.first_line if part.line else hit.offset < part.top.get(hit.log, 0)

    def _show(self, index: int) -> None:
        """Show the hit at ``index`` of all; behind the last one is the end of the log."""
        pane, hits = self._tabs.log_pane, self._whole or ()
        if pane is None:
            return
        if not -len(hits) <= index < len(hits):
            pane.leave_part()
            pane.step(1, from_line=-1)
            return
        hit = hits[index]
        if hit.at:
            self._ask_piece(0, self._log, {hit.log: hit.offset}, hit.at)
        else:
            self.open_line(hit.log, hit.line, hit.offset, pane.sought)

    def do_search(self) -> None:
        """Show the logs, and open the prompt for what to search."""
        self._tabs.open(NUMBERS["logs"])
        words = self._tabs.log_pane.sought.text if self._tabs.log_pane is not None else ""
        self._screen.prompting.ask(
            "search", "/", words, hint="words  since:10m  level:error  rank:3  role:engine  node:n1  re:REGEX"
        )


OWN = ""


def log_items(files: Sequence[LogFile], current: str) -> list[PickItem]:
    """The attempt's own output, all logs together, then each; the one that is shown is marked."""
    items = [
        PickItem(id=OWN, label="the attempt's own output", detail="out.log"),
        PickItem(id=ALL_LOGS, label="all logs, merged by time", detail=f"{len(files)} logs"),
    ]
    items += [PickItem(id=file.name, label=file.name, detail=_detail(file)) for file in files if file.name != "out.log"]
    return [item._replace(urgent=item.id == current) for item in items]


def _detail(file: LogFile) -> str:
    size = f"{file.size / 1024:.0f} kB" if file.size < 1 << 20 else f"{file.size / (1 << 20):.1f} MB"
    return f"{size}  {file.node}".rstrip()
