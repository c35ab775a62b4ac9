"""The keys of an open run; the tab in sight does most of them."""

from __future__ import annotations

from operator import attrgetter

from rltui.tui.keys import Key, Off, first_of, key_table, may_change, needs
from rltui.tui.screens.run_actions import ACT


def _in(*tabs: str, says: str) -> Off:
    return needs(lambda context: context.tab in tabs, f"this key is for {says}")


_in_log = _in("logs", says="the log: 6 opens it")
_in_gpus = _in("gpus", says="the GPUs: 2 opens them")
_in_gpus_or_actors = _in("gpus", "actors", says="the GPUs and actors: 2 and 3 open them")
_in_actors = _in("actors", says="the actors: 3 opens them")
_can_ask_processes = first_of(may_change, _in_actors)
_in_samples = _in("samples", says="the samples: 9 opens them")
_in_metrics = _in("metrics", says="the metrics: 5 opens them")
_has_wandb = first_of(needs(lambda context: not context.recorded, "a recording has no files of W&B"), _in_metrics)
_in_log_or_metrics = _in("logs", "metrics", says="log and metrics: 6 and 5 open them")
_has_one = first_of(
    needs(lambda context: context.tab != "gpus" or context.can_open, "this key is for the map of nodes: v shows it"),
    _in("gpus", "samples", "metrics", "actors", says="samples, metrics and actors: 9, 5 and 3 open them"),
)
_in_samples_or_config = _in("samples", "config", says="samples and config: 9 and 0 open them")
_has_panels = needs(attrgetter("has_panels"), "no plug-in brings a tab")
_needs_search = needs(attrgetter("searching"), "nothing is searched: / starts a search of the log")

KEYS = key_table(
    "one run",
    Key("tab_overview", ("1",), "overview", "Everything at once."),
    Key("tab_gpus", ("2",), "GPUs", "Every node: GPUs with their roles, CPU, memory, processes."),
    Key("tab_actors", ("3",), "actors", "Ray actors: state, node, process, restarts, why they died."),
    Key("tab_queues", ("4",), "queues", "Queues of the trainer and of the scheduler, weight versions."),
    Key("tab_metrics", ("5",), "metrics", "Where a step goes, and every series as a chart."),
    Key("tab_logs", ("6",), "logs", "The logs of all nodes: scroll, follow, search."),
    Key("tab_events", ("7",), "events", "What happened to the attempt, and when."),
    Key("tab_history", ("8",), "history", "Where the time went: goodput, and what each loss cost."),
    Key("tab_samples", ("9",), "samples", "Answers that were trained on, and those of evaluations."),
    Key("tab_config", ("0",), "config", "Every setting, where it comes from, what it was before."),
    Key("next_tab", ("]", "tab"), "next tab", "Go to the next tab.", 1),
    Key("previous_tab", ("[", "shift+tab"), "tab before", "Go to the tab before."),
    Key("go_right", ("right", "l"), "right", "The next tab; on the map of GPUs, the next node."),
    Key("go_left", ("left", "h"), "left", "The tab before; on the map of GPUs, the node before."),
    Key("queue", ("Q",), "queue", "The queue of its cluster: who waits, who holds what, free GPUs."),
    Key("plugin_tab", ("P",), "plug-ins", "The next tab of a plug-in.", 0, _has_panels),
    Key("wall", ("v",), "view", "GPUs: each card and process, a line or a mark a node.", 2, _in_gpus, quiet=True),
    Key(
        "worst_first",
        ("O",),
        "order",
        "GPUs and actors: what is wrong first; by role, memory, node.",
        3,
        _in_gpus_or_actors,
        quiet=True,
    ),
    Key(
        "stack",
        ("T",),
        "stack",
        "Actors: what its process is doing, by py-spy or faulthandler.",
        3,
        _can_ask_processes,
        quiet=True,
    ),
    Key("choose_log", ("o",), "which log", "Choose a log, or all of them together.", 2, _in_log, quiet=True),
    Key("follow", ("F",), "follow", "Stay at the end of the log.", 3, _in_log, quiet=True),
    Key("fold", ("+",), "repeats", "Log: repeats as one line, or every line.", 0, _in_log),
    Key("search", ("/",), "search", "Search log or samples; filter settings, GPUs or actors.", 6),
    Key("next_hit", ("n",), "next hit", "Go to the next hit of the search.", 0, _needs_search),
    Key("previous_hit", ("N",), "hit before", "Go to the hit before.", 0, _needs_search),
    Key(
        "pan_left",
        ("<",),
        "left",
        "Move long log lines, or the cursor of the charts, to the left.",
        0,
        _in_log_or_metrics,
    ),
    Key("pan_right", (">",), "right", "The same to the right.", 0, _in_log_or_metrics),
    Key("zoom_in", ("Z",), "zoom", "Metrics: half of the axis.", 3, _in_metrics, quiet=True),
    Key("zoom_out", ("U",), "unzoom", "Metrics: twice as much of the axis.", 0, _in_metrics),
    Key("axis", ("X",), "axis", "Metrics: over steps, time or GPU-hours.", 3, _in_metrics, quiet=True),
    Key("log_y", ("Y",), "log y", "Metrics: the logarithm of values, or these.", 0, _in_metrics),
    Key("smooth", ("S",), "smooth", "Metrics: smoothed lightly, strongly, not.", 0, _in_metrics),
    Key("beside", ("B",), "beside", "Metrics: draw another run too, or no more.", 3, _in_metrics, quiet=True),
    Key("wandb", ("W",), "W&B", "Metrics: its page or files at W&B.", 3, _has_wandb, quiet=True),
    Key("worst", ("w",), "worst", "Samples: the lowest rewards first.", 2, _in_samples, quiet=True),
    Key("best", ("b",), "best", "Samples: the highest rewards first.", 0, _in_samples),
    Key("longest", ("L",), "longest", "Samples: the longest answers first.", 0, _in_samples),
    Key("evaluation", ("i",), "evaluation", "Samples: of evaluations, or training.", 0, _in_samples),
    Key(
        "whole",
        ("enter",),
        "open",
        "Samples and metrics: one alone, or all. Actors: its log. Map: its cards.",
        2,
        _has_one,
        quiet=True,
    ),
    Key("next_sibling", (")",), "sibling", "Samples: the next answer to its prompt.", 0, _in_samples),
    Key("previous_sibling", ("(",), "sibling before", "Samples: the one before.", 0, _in_samples),
    Key(
        "differences",
        ("d",),
        "diff",
        "Samples: words that differ from the best sibling. Config: only what differs from before.",
        3,
        _in_samples_or_config,
        quiet=True,
    ),
    Key("copy", ("y",), "copy", "Copy the run's id; in the log, the line of the hit or the last one shown."),
    shared=(ACT,),
)
