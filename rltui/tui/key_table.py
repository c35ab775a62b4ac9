"""The one table of keys: what a key does, the footer, the help, the palette and the reasons why one is off."""

from __future__ import annotations

from rltui.tui.keys import Key, KeyContext
from rltui.watch.snapshots import LIVE_STATES


def _needs_run(context: KeyContext) -> str:
    return "" if context.run_state else "no run is selected"


def _may_change(context: KeyContext) -> str:
    return "this cockpit is read-only" if context.readonly else ""


def _can_act(context: KeyContext) -> str:
    return _may_change(context) or _needs_run(context)


def _can_cancel(context: KeyContext) -> str:
    ended = "" if context.run_state in LIVE_STATES else f"nothing to cancel: the run is {context.run_state} already"
    return _can_act(context) or ended


def _can_exclude(context: KeyContext) -> str:
    unknown = "" if context.num_nodes else "the run's nodes are not known: there is none to keep away from"
    return _can_act(context) or unknown


def _can_launch(context: KeyContext) -> str:
    reasons = {
        "none": "no preset is selected",
        "pending": "still checking: wait for the findings",
        "errors": "errors stand in the way: see the findings",
        "ready": "",
    }
    return _may_change(context) or reasons[context.review]


def _needs_overrides(context: KeyContext) -> str:
    return "" if context.has_overrides else "there is no override yet: s sets one"


def _needs_fix(context: KeyContext) -> str:
    return "" if context.has_fix else "no finding comes with a fix"


def _can_apply(context: KeyContext) -> str:
    return _may_change(context) or ("" if context.has_fix else "no remedy here can be applied from the cockpit")


def _needs_clusters(context: KeyContext) -> str:
    return "" if context.num_clusters > 1 else "there is one cluster only: rltui setup adds another"


def _needs_question(context: KeyContext) -> str:
    return "" if context.needs_you else "no cluster waits for an answer"


def _in_log(context: KeyContext) -> str:
    return "" if context.tab == "logs" else "this key is for the log: 6 opens it"


def _in_gpus(context: KeyContext) -> str:
    return "" if context.tab == "gpus" else "this key is for the GPUs: 2 opens them"


def _needs_search(context: KeyContext) -> str:
    return "" if context.searching else "nothing is searched: / starts a search of the log"


def _can_confirm(context: KeyContext) -> str:
    return context.problem


def _can_edit(context: KeyContext) -> str:
    return "" if context.can_edit else "there is nothing to edit in it"


def _can_mark(context: KeyContext) -> str:
    return "" if context.marking else "one line is chosen here, with enter"


def _leads_somewhere(context: KeyContext) -> str:
    return "" if context.can_open else "this line leads nowhere"


_RUNS = (
    Key("open", ("enter",), "open", "Open the selected run.", "runs", 1, _needs_run),
    Key(
        "launch", ("n",), "launch", "Choose a preset and a cluster, look at it, and launch it.", "runs", 2, _may_change
    ),
    Key("filter", ("/",), "filter", "Show only runs with these words; state: algo: cluster: name a field.", "runs", 6),
    Key("answer", ("a",), "answer", "Answer the cluster that needs you.", "runs", 5, _needs_question, quiet=True),
    Key("next_cluster", ("]",), "cluster", "Show the runs of the next cluster only.", "runs", 0, _needs_clusters),
    Key("previous_cluster", ("[",), "cluster", "Show the runs of the cluster before.", "runs", 0, _needs_clusters),
    Key("clusters", ("C",), "clusters", "The clusters: which are away, and which need you.", "runs"),
    Key("copy", ("y",), "copy", "Copy the id of the selected run.", "runs", 0, _needs_run),
)

_RUN = (
    Key("tab_overview", ("1",), "overview", "Everything at once.", "run"),
    Key("tab_gpus", ("2",), "GPUs", "Every node: GPUs with their roles, CPU, memory, processes.", "run"),
    Key("tab_actors", ("3",), "actors", "Ray actors: state, node, process, restarts, why they died.", "run"),
    Key("tab_queues", ("4",), "queues", "Queues of the trainer and of the scheduler, weight versions.", "run"),
    Key("tab_metrics", ("5",), "metrics", "Where a step goes, and every series as a chart.", "run"),
    Key("tab_logs", ("6",), "logs", "The logs of all nodes: scroll, follow, search.", "run"),
    Key("tab_events", ("7",), "events", "What happened to the attempt, and when.", "run"),
    Key("next_tab", ("]", "right", "l", "tab"), "next tab", "Go to the next tab.", "run", 1),
    Key("previous_tab", ("[", "left", "h", "shift+tab"), "tab before", "Go to the tab before.", "run"),
    Key("wall", ("v",), "view", "GPUs: one line a node, or every GPU and process.", "run", 2, _in_gpus, quiet=True),
    Key("choose_log", ("o",), "which log", "Choose a log, or all of them together.", "run", 2, _in_log, quiet=True),
    Key("follow", ("f",), "follow", "Stay at the end of the log.", "run", 3, _in_log, quiet=True),
    Key("search", ("/",), "search", "Search the log.", "run", 6),
    Key("next_hit", ("n",), "next hit", "Go to the next hit of the search.", "run", 0, _needs_search),
    Key("previous_hit", ("N",), "hit before", "Go to the hit before.", "run", 0, _needs_search),
    Key("pan_left", ("<",), "pan left", "Move long log lines to the left.", "run", 0, _in_log),
    Key("pan_right", (">",), "pan right", "Move long log lines to the right.", "run", 0, _in_log),
    Key("copy", ("y",), "copy", "Copy the run's id; in the log, the line of the hit or the last one shown.", "run"),
)

_ACT = (
    Key("why", ("!",), "why", "Why it died or stands still: causes, evidence, remedies.", "act", 3, _needs_run),
    Key("actions", ("x",), "act", "A menu of all actions, with the reason where one cannot be done.", "act", 4),
    Key("cancel", ("c",), "cancel", "Cancel the run.", "act", 5, _can_cancel),
    Key("resubmit", ("r",), "resubmit", "Start a new attempt from the newest checkpoint.", "act", 0, _can_act),
    Key("exclude", ("e",), "exclude", "Resubmit without some of its nodes.", "act", 0, _can_exclude),
    Key("lower_memory", ("m",), "less memory", "Resubmit with a lower memory peak.", "act", 0, _can_act),
    Key("edit", ("s",), "edit", "Resubmit with changes: key.path=value.", "act", 0, _can_act),
)

_LAUNCH = (
    Key("submit", ("enter",), "launch", "Launch what is shown, then open the run.", "launch", 1, _can_launch),
    Key("cluster", ("c",), "cluster", "Launch on the next cluster.", "launch", 2, _needs_clusters, quiet=True),
    Key("cluster_before", ("C",), "cluster", "Launch on the cluster before.", "launch", 0, _needs_clusters),
    Key("set", ("s",), "set", "Set a value: key.path=value.", "launch", 3),
    Key(
        "script", ("v",), "script", "Show the job script exactly as it would be submitted, or the review.", "launch", 4
    ),
    Key("fix", ("f",), "fix", "Apply the fix of the first finding that has one.", "launch", 5, _needs_fix, quiet=True),
    Key("edit", ("e",), "edit", "Edit the newest override.", "launch", 6, _needs_overrides, quiet=True),
    Key("drop", ("d",), "drop", "Drop the newest override.", "launch", 7, _needs_overrides, quiet=True),
    Key("filter", ("/",), "filter", "Show only presets with these words.", "launch", 8),
    Key("copy", ("y",), "copy", "Copy the commands, or the script where it is shown.", "launch"),
)

_WHY = (
    Key(
        "open",
        ("enter",),
        "open",
        "Evidence: go to that line in the log. A remedy: preview it.",
        "why",
        1,
        _leads_somewhere,
    ),
    Key("fix", ("f",), "fix", "Preview the best remedy of this cause.", "why", 2, _can_apply),
    Key("again", ("r",), "look again", "Read the logs again.", "why", 3),
    Key("copy", ("y",), "copy", "Copy the line under the cursor.", "why", 4),
)

_CLUSTERS = (
    Key("answer", ("a", "enter"), "answer", "Answer what the cluster asks for.", "clusters", 1, _needs_question),
    Key("copy", ("y",), "copy", "Copy why the cluster is away.", "clusters", 2),
)

_MODALS = (
    Key("yes", ("y",), "do it", "Do what is shown.", "confirm", 1, _can_confirm),
    Key("no", ("n", "escape", "q", "enter"), "no", "Leave everything as it is.", "confirm", 2),
    Key("edit", ("e",), "edit", "Edit the changes first.", "confirm", 3, _can_edit, quiet=True),
    Key("choose", ("enter",), "choose", "Choose the line, or all that are marked.", "pick", 1),
    Key("mark", ("space",), "mark", "Mark the line, or take its mark away.", "pick", 2, _can_mark, quiet=True),
    Key("close", ("escape", "q"), "close", "Choose nothing.", "pick", 3),
    Key("close", ("escape", "q", "?", "enter"), "close", "Close the help.", "help", 1),
)

_EVERYWHERE = (
    Key("down", ("j", "down"), "down", "Down.", "list"),
    Key("up", ("k", "up"), "up", "Up.", "list"),
    Key("page_down", ("ctrl+d", "pagedown"), "page down", "A page down.", "list"),
    Key("page_up", ("ctrl+u", "pageup"), "page up", "A page up.", "list"),
    Key("first", ("g", "home"), "first", "To the first line.", "list"),
    Key("last", ("G", "end"), "last", "To the last line.", "list"),
    Key("pause", ("p",), "pause", "Stop and start drawing; data are collected all the while.", "everywhere", 11),
    Key("command", (":",), "command", "Type a command; tab completes it.", "everywhere", 8),
    Key("palette", ("ctrl+p",), "palette", "All that can be done here, by name.", "everywhere"),
    Key("help", ("?",), "help", "This page.", "everywhere", 9),
    Key("back", ("q",), "back", "Back; on the list of runs, quit. Runs go on.", "everywhere", 10),
    Key("escape", ("escape",), "clear", "Clear a filter or a search, or go back.", "everywhere"),
)

KEYS: tuple[Key, ...] = (*_RUNS, *_RUN, *_ACT, *_LAUNCH, *_WHY, *_CLUSTERS, *_MODALS, *_EVERYWHERE)
"""All keys. ``ctrl+c`` twice within two seconds quits from anywhere; it is the application's own."""
