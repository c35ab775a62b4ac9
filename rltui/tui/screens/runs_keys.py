"""The keys of the list of runs, and what those do that change how it is shown."""

from __future__ import annotations

from functools import partialmethod

from rltui.errors import RltuiError
from rltui.paths import keep, kept_text
from rltui.service.run_columns import DEFAULTS, GPUS, keep_columns, kept_columns
from rltui.service.run_filter import drop_filter, known_words, save_filter, saved_filters
from rltui.tui import commands, keys
from rltui.tui.keys import Key, KeyGroup, KeyTable
from rltui.tui.screens.base import CockpitScreen, Part
from rltui.tui.screens.run_actions import ACT
from rltui.tui.widgets.runs_table import RunsTable

BASELINE = "baseline"
"""File of the state directory with the run that others are held against."""

KEYS = keys.key_table(
    "runs",
    Key("open", ("enter",), "open", "Open the run; of several as one line, show each.", 1, keys.needs_line),
    Key("launch", ("n",), "launch", "Choose a preset and a cluster, look at it, and launch it.", 2),
    Key(
        "filter",
        ("/",),
        "filter",
        "Show only runs with these words; state: algo: cluster: why: name a field, since:2h a time, @name "
        "a saved filter. :filter save NAME saves what is shown, :filter NAME calls it.",
        6,
    ),
    Key("answer", ("a",), "answer", "Answer the cluster that needs you.", 5, keys.needs_question, quiet=True),
    Key("next_cluster", ("]",), "cluster", "Show the runs of the next cluster only.", 0, keys.needs_clusters),
    Key("previous_cluster", ("[",), "cluster", "Show the runs of the cluster before.", 0, keys.needs_clusters),
    Key("queue", ("Q",), "queue", "The queue of the run's cluster: who waits, who holds what, free GPUs."),
    Key("clusters", ("C",), "clusters", "The clusters: which are away, and which need you."),
    Key("fold", ("+",), "fold", "Show each run of a sweep or array, or all as one line.", 0, keys.needs_line),
    Key("failures", ("F",), "failures", "Only runs that failed, the one that failed last first."),
    Key("columns", ("|",), "columns", "Choose the columns of the list, and their order; they are kept."),
    Key("times", ("t",), "times", "Show since when runs are there, or day and hour."),
    Key("sort_age", ("A",), "by age", "Sort by age, as at first: the newest on top."),
    Key("sort_ended", ("E",), "by end", "Sort by end: what ended last on top."),
    Key("sort_reward", ("R",), "by reward", "Sort by reward, the highest on top."),
    Key("sort_speed", ("T",), "by tok/s", "Sort by tokens a second, the most on top."),
    Key("mark", ("space",), "mark", "Mark the run: c, r and f are for all marked ones.", 0, keys.needs_line),
    Key("mark_all", ("*",), "mark all", "Mark all runs that are shown, or none.", 0, keys.needs_line),
    Key("compare", ("=",), "compare", "Compare the marked runs.", 0, keys.needs_marks),
    Key(
        "baseline",
        ("B",),
        "baseline",
        "Hold others against this run at each =, until B is pressed on it again.",
        0,
        keys.needs_run,
    ),
    Key("copy", ("y",), "copy", "Copy the id of the selected run.", 0, keys.needs_run),
    shared=(ACT,),
    back="quit",
)


class _OfTable(Part):
    """What acts on the list of the home screen.

    Args:
        screen: The home screen.
        table: The list.
    """

    def __init__(self, screen: CockpitScreen, table: RunsTable) -> None:
        super().__init__(screen)
        self._table = table


class ListKeys(_OfTable):
    """How the list is shown: its order, marks, baseline and columns."""

    # --- the order

    def _sort(self, order: str) -> None:
        self._table.sort_by(order)
        self._table.go_to(0)
        self._screen.moved()

    do_sort_age = partialmethod(_sort, "")
    do_sort_ended = partialmethod(_sort, "ended")
    do_sort_reward = partialmethod(_sort, "reward")
    do_sort_speed = partialmethod(_sort, "tok/s")

    def do_failures(self) -> None:
        """Only what failed, the latest on top."""
        self._table.narrow("state:failed")
        self._sort("ended")
        self._table.go_to_first()  # the next key is for the latest failure, and not for its whole sweep
        self._screen.moved()

    # --- marks

    def do_mark(self) -> None:
        """Mark the run under the cursor and go to the next."""
        self._table.mark()
        self._screen.moved()

    def do_baseline(self) -> None:
        """Keep the run under the cursor as the baseline; where it is, take that away."""
        table = self._table
        run = table.selected
        assert run is not None
        pinned = "" if run.identity.is_called(table.baseline) else str(run.identity)
        problem = keep(BASELINE, pinned)
        table.pin(pinned)
        done = f"{run.run_id} is the baseline of =" if pinned else "there is no baseline any more"
        self.cockpit.say(problem or done, "warning" if problem else "information")

    # --- columns

    def do_columns(self) -> None:
        """Open the screen on which the table's columns are chosen."""
        from rltui.tui.screens.columns import ColumnsScreen

        def chosen(words: tuple[str, ...] | None) -> None:
            if words:
                words = () if words == DEFAULTS else words
                self.cockpit.say(keep_columns(words), "warning")
                self._show_columns(words)

        self._screen.app.push_screen(ColumnsScreen(self._table.columns or DEFAULTS), chosen)

    def show_kept(self) -> None:
        """Show columns and baseline as the user left them."""
        self._show_columns(kept_columns())
        self._table.pin(kept_text(BASELINE))

    def _show_columns(self, words: tuple[str, ...]) -> None:
        self._table.show_columns(words)
        self.cockpit.controller.want_gpus(GPUS in words)


class SavedFilters(_OfTable):
    """The filter of the list, and filters with a name: kept, called, forgotten."""

    def read(self) -> None:
        """Know what is saved now."""
        self._table.saved = saved_filters()

    def call(self, name: str) -> None:
        """Show only what fits a saved filter, or say that there is none."""
        self.read()
        if name in self._table.saved:
            self._screen.narrow(f"@{name}")
        else:
            known = ", ".join(self._table.saved)
            said = f"saved are {known}" if known else "/ and then :filter save NAME saves one"
            self.cockpit.say(f"there is no saved filter {name!r}: {said}", "warning")

    def change(self, order: str, name: str) -> None:
        """Save the filter of the list under ``name``, or drop the one that is called so."""
        words = self._table.query_words
        try:
            save_filter(name, words) if order == "save" else drop_filter(name)
        except RltuiError as error:
            self.cockpit.say(error.in_one_line, "warning")
            return
        self.read()
        done = f"saved: {words}   :filter {name} or @{name} calls it" if order == "save" else f"@{name} is forgotten"
        self.cockpit.say(done)

    def _complete(self, text: str) -> commands.Completion:
        """Complete the last word of a filter: a field with a value that runs have, or the name of a saved one."""
        before, space, last = text.rpartition(" ")
        saved = [f"@{name}" for name in self._table.saved]
        words = [*known_words(self.cockpit.pictures.runs.runs), *saved]
        return commands.extend(last, words, before=before + space)

    def with_saved(self, table: KeyTable) -> KeyTable:
        """Keys for the help page, with the saved filters behind the first group."""
        if not self._table.saved:
            return table
        entries = tuple(Key(name, (f"@{name}",), name, words) for name, words in self._table.saved.items())
        first, *rest = table.groups
        return KeyTable((first, KeyGroup("saved filters, behind / or :filter", entries), *rest), table.back)

    def do_filter(self) -> None:
        """Open the prompt for words that a run has to have."""
        self._screen.prompting.ask(
            "filter",
            "/",
            f"{self._table.query_words} ".lstrip(),  # so that another word is another word
            hint="words, state:running, since:2h, cluster:name, why:oom, @saved",
            complete=self._complete,
        )
