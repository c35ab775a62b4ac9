"""What the keys of an open run do with its logs: choose one, follow it, search it, move it sideways."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partialmethod

from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.tui.messages import FoundLine, LogSearched
from rltui.tui.picking import PickItem
from rltui.tui.screens.keyed import Part
from rltui.tui.screens.run_tabs import NUMBERS, TabsScreen
from rltui.tui.views.actors import own_log
from rltui.tui.widgets.log_pane import LogPane
from rltui.watch.log_search import NEWEST_HITS, read_query
from rltui.watch.owners import ActorSnapshot
from rltui.watch.snapshots import ALL_LOGS, LogFile, LogPart


class LogKeys(Part[TabsScreen]):
    """What the keys of the log do."""

    def __init__(self, screen: TabsScreen) -> None:
        super().__init__(screen)
        self._whole: tuple[FoundLine, ...] | None = None
        self._here = 0
        self._step_wanted: int | None = None

    def in_log(self, act: Callable[[LogPane], object]) -> None:
        """Do something with the log's pane, if it was opened."""
        if self._screen.log_pane is not None:
            act(self._screen.log_pane)

    def do_choose_log(self) -> None:
        """Choose which log is shown."""
        from rltui.tui.screens.pick import PickScreen

        def chosen(ids: tuple[str, ...] | None) -> None:
            if ids:
                self.in_log(lambda pane: pane.leave_part())
                self._screen.log_name = ids[0]
                self.cockpit.controller.watch_log(self._screen.log_name)

        self._screen.app.push_screen(
            PickScreen("which log", log_items(self._screen.log_files, self._screen.log_name)), chosen
        )

    def open_actor(self, actor: ActorSnapshot) -> None:
        """Show the log of an actor's process: Ray's own, else its lines in the attempt's output, to go through."""
        name = own_log(actor, self._screen.log_files)
        self._screen.log_name = name
        self.cockpit.controller.watch_log(name)
        self._screen.open_tab(NUMBERS["logs"])
        self.in_log(lambda pane: pane.leave_part())
        if name:
            self.clear()
        elif actor.pid:
            self.search(rf"re:\(.*\bpid={actor.pid}\b")
            self.cockpit.say(f"Ray's log of pid {actor.pid} is not here: n and N go to what the output has of it")

    # --- scrolling beyond the lines that are there

    def read_on(self, step: int) -> None:
        """Ask for the lines before the first (-1) or behind the last (1) one."""
        pane = self._screen.log_pane
        if pane is None:
            return
        name = pane.part.name if pane.part is not None else self._screen.log_name
        place = None if pane.part is None else pane.part.top if step < 0 else pane.part.bottom
        self._ask_piece(step, name, place)

    def _ask_piece(self, step: int, name: str, place: Mapping[str, int] | None, at: float | None = None) -> None:
        self._step_wanted = step
        self.in_log(lambda pane: pane.expect(name))
        self.cockpit.controller.ask_log_piece(self._screen.run_id, name, place, at)

    def take_piece(self, part: LogPart) -> None:
        """Show the lines that were asked for; where there are none behind the last one, the end of the log."""
        pane, step = self._screen.log_pane, self._step_wanted
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
        pane = self._screen.log_pane
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
            self.cockpit.controller.searches.log(self._screen.run_id, self._log, query)
        return ""

    def clear(self) -> None:
        """End the search, and show the log without its marks."""
        self._whole = None
        self.cockpit.controller.searches.end()
        self.in_log(lambda pane: pane.search(read_query("")))

    @property
    def _log(self) -> str:
        """The log that is searched as a whole, or all."""
        pane = self._screen.log_pane
        if pane is not None and pane.part is not None:
            return pane.part.name
        return self._screen.log_name or rundir.OUT_LOG

    def receive(self, message: LogSearched) -> None:
        """Take what was found in all of the log; where the lines that are there have no hit, show the newest one."""
        pane = self._screen.log_pane
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
        pane = self._screen.log_pane
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
        pane, hits = self._screen.log_pane, self._whole or ()
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
            self._screen.open_hit(hit.log, hit.line, hit.offset, pane.sought)

    def do_search(self) -> None:
        """Show the logs, and open the prompt for what to search."""
        self._screen.open_tab(NUMBERS["logs"])
        words = self._screen.log_pane.sought.text if self._screen.log_pane is not None else ""
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
