"""The keys of an open run."""

from __future__ import annotations

from rltui.tui import keys
from rltui.tui.screens.run_actions import ACT


def _in_log(context: keys.KeyContext) -> str:
    return "" if context.tab == "logs" else "this key is for the log: 6 opens it"


def _in_gpus(context: keys.KeyContext) -> str:
    return "" if context.tab == "gpus" else "this key is for the GPUs: 2 opens them"


def _in_gpus_or_actors(context: keys.KeyContext) -> str:
    return "" if context.tab in ("gpus", "actors") else "this key is for the GPUs and actors: 2 and 3 open them"


def _in_actors(context: keys.KeyContext) -> str:
    return "" if context.tab == "actors" else "this key is for the actors: 3 opens them"


def _can_ask_processes(context: keys.KeyContext) -> str:
    return keys.may_change(context) or _in_actors(context)


def _in_samples(context: keys.KeyContext) -> str:
    return "" if context.tab == "samples" else "this key is for the samples: 9 opens them"


def _in_metrics(context: keys.KeyContext) -> str:
    return "" if context.tab == "metrics" else "this key is for the metrics: 5 opens them"


def _has_wandb(context: keys.KeyContext) -> str:
    return "a recording has no files of W&B" if context.recorded else _in_metrics(context)


def _in_log_or_metrics(context: keys.KeyContext) -> str:
    return "" if context.tab in ("logs", "metrics") else "this key is for log and metrics: 6 and 5 open them"


def _has_one(context: keys.KeyContext) -> str:
    if context.tab == "gpus":
        return "" if context.can_open else "this key is for the map of nodes: v shows it"
    where = "this key is for samples, metrics and actors: 9, 5 and 3 open them"
    return "" if context.tab in ("samples", "metrics", "actors") else where


def _in_samples_or_config(context: keys.KeyContext) -> str:
    return "" if context.tab in ("samples", "config") else "this key is for samples and config: 9 and 0 open them"


def _has_panels(context: keys.KeyContext) -> str:
    return "" if context.has_panels else "no plug-in brings a tab"


def _needs_search(context: keys.KeyContext) -> str:
    return "" if context.searching else "nothing is searched: / starts a search of the log"


KEYS = keys.KeyTable(
    (
        keys.KeyGroup(
            "one run",
            (
                keys.Key("tab_overview", ("1",), "overview", "Everything at once."),
                keys.Key("tab_gpus", ("2",), "GPUs", "Every node: GPUs with their roles, CPU, memory, processes."),
                keys.Key("tab_actors", ("3",), "actors", "Ray actors: state, node, process, restarts, why they died."),
                keys.Key(
                    "tab_queues", ("4",), "queues", "Queues of the trainer and of the scheduler, weight versions."
                ),
                keys.Key("tab_metrics", ("5",), "metrics", "Where a step goes, and every series as a chart."),
                keys.Key("tab_logs", ("6",), "logs", "The logs of all nodes: scroll, follow, search."),
                keys.Key("tab_events", ("7",), "events", "What happened to the attempt, and when."),
                keys.Key("tab_history", ("8",), "history", "Where the time went: goodput, and what each loss cost."),
                keys.Key("tab_samples", ("9",), "samples", "Answers that were trained on, and those of evaluations."),
                keys.Key("tab_config", ("0",), "config", "Every setting, where it comes from, what it was before."),
                keys.Key("next_tab", ("]", "tab"), "next tab", "Go to the next tab.", 1),
                keys.Key("previous_tab", ("[", "shift+tab"), "tab before", "Go to the tab before."),
                keys.Key("go_right", ("right", "l"), "right", "The next tab; on the map of GPUs, the next node."),
                keys.Key("go_left", ("left", "h"), "left", "The tab before; on the map of GPUs, the node before."),
                keys.Key("queue", ("Q",), "queue", "The queue of its cluster: who waits, who holds what, free GPUs."),
                keys.Key("plugin_tab", ("P",), "plug-ins", "The next tab of a plug-in.", 0, _has_panels),
                keys.Key(
                    "wall",
                    ("v",),
                    "view",
                    "GPUs: each card and process, a line or a mark a node.",
                    2,
                    _in_gpus,
                    quiet=True,
                ),
                keys.Key(
                    "worst_first",
                    ("O",),
                    "order",
                    "GPUs and actors: what is wrong first; by role, memory, node.",
                    3,
                    _in_gpus_or_actors,
                    quiet=True,
                ),
                keys.Key(
                    "stack",
                    ("T",),
                    "stack",
                    "Actors: what its process is doing, by py-spy or faulthandler.",
                    3,
                    _can_ask_processes,
                    quiet=True,
                ),
                keys.Key(
                    "choose_log", ("o",), "which log", "Choose a log, or all of them together.", 2, _in_log, quiet=True
                ),
                keys.Key("follow", ("F",), "follow", "Stay at the end of the log.", 3, _in_log, quiet=True),
                keys.Key("fold", ("+",), "repeats", "Log: repeats as one line, or every line.", 0, _in_log),
                keys.Key("search", ("/",), "search", "Search log or samples; filter settings, GPUs or actors.", 6),
                keys.Key("next_hit", ("n",), "next hit", "Go to the next hit of the search.", 0, _needs_search),
                keys.Key("previous_hit", ("N",), "hit before", "Go to the hit before.", 0, _needs_search),
                keys.Key(
                    "pan_left",
                    ("<",),
                    "left",
                    "Move long log lines, or the cursor of the charts, to the left.",
                    0,
                    _in_log_or_metrics,
                ),
                keys.Key("pan_right", (">",), "right", "The same to the right.", 0, _in_log_or_metrics),
                keys.Key("zoom_in", ("Z",), "zoom", "Metrics: half of the axis.", 3, _in_metrics, quiet=True),
                keys.Key("zoom_out", ("U",), "unzoom", "Metrics: twice as much of the axis.", 0, _in_metrics),
                keys.Key("axis", ("X",), "axis", "Metrics: over steps, time or GPU-hours.", 3, _in_metrics, quiet=True),
                keys.Key("log_y", ("Y",), "log y", "Metrics: the logarithm of values, or these.", 0, _in_metrics),
                keys.Key("smooth", ("S",), "smooth", "Metrics: smoothed lightly, strongly, not.", 0, _in_metrics),
                keys.Key(
                    "beside", ("B",), "beside", "Metrics: draw another run too, or no more.", 3, _in_metrics, quiet=True
                ),
                keys.Key("wandb", ("W",), "W&B", "Metrics: its page or files at W&B.", 3, _has_wandb, quiet=True),
                keys.Key("worst", ("w",), "worst", "Samples: the lowest rewards first.", 2, _in_samples, quiet=True),
                keys.Key("best", ("b",), "best", "Samples: the highest rewards first.", 0, _in_samples),
                keys.Key("longest", ("L",), "longest", "Samples: the longest answers first.", 0, _in_samples),
                keys.Key("evaluation", ("i",), "evaluation", "Samples: of evaluations, or training.", 0, _in_samples),
                keys.Key(
                    "whole",
                    ("enter",),
                    "open",
                    "Samples and metrics: one alone, or all. Actors: its log. Map: its cards.",
                    2,
                    _has_one,
                    quiet=True,
                ),
                keys.Key("next_sibling", (")",), "sibling", "Samples: the next answer to its prompt.", 0, _in_samples),
                keys.Key("previous_sibling", ("(",), "sibling before", "Samples: the one before.", 0, _in_samples),
                keys.Key(
                    "differences",
                    ("d",),
                    "diff",
                    "Samples: words that differ from the best sibling. Config: only what differs from before.",
                    3,
                    _in_samples_or_config,
                    quiet=True,
                ),
                keys.Key(
                    "copy", ("y",), "copy", "Copy the run's id; in the log, the line of the hit or the last one shown."
                ),
            ),
        ),
        ACT,
        keys.LIST,
        keys.EVERYWHERE,
    )
)
