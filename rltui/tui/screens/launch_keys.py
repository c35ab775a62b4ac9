"""Keys of the launch screen, and why one cannot be used."""

from __future__ import annotations

from rltui.tui import keys


def _can_launch(context: keys.KeyContext) -> str:
    reasons = {
        "none": "no preset is selected",
        "pending": "still checking: wait for the findings",
        "errors": "errors stand in the way: see the findings",
        "ready": "",
    }
    return keys.may_change(context) or reasons[context.review]


def _needs_overrides(context: keys.KeyContext) -> str:
    return "" if context.has_overrides else "there is no override yet: s sets one"


def _needs_layout(context: keys.KeyContext) -> str:
    if context.problem:
        return context.problem
    return "no preset is selected" if context.review == "none" else ""


def _needs_one(context: keys.KeyContext) -> str:
    return "hands-off mode goes without a sweep: a run that goes on takes no turn" if context.has_sweep else ""


def _needs_fix(context: keys.KeyContext) -> str:
    return "" if context.has_fix else "no finding comes with a fix"


KEYS = keys.KeyTable(
    (
        keys.KeyGroup(
            "launch",
            (
                keys.Key("submit", ("enter",), "launch", "Launch what is shown, then open the run.", 1, _can_launch),
                keys.Key(
                    "cluster", ("c",), "cluster", "Launch on the next cluster.", 2, keys.needs_clusters, quiet=True
                ),
                keys.Key("cluster_before", ("C",), "cluster", "Launch on the cluster before.", 0, keys.needs_clusters),
                keys.Key("set", ("s",), "set", "Set a value: key.path=value; of a script, its options and words.", 3),
                keys.Key(
                    "script",
                    ("v",),
                    "script",
                    "Show the job script exactly as it would be submitted, or the review.",
                    4,
                ),
                keys.Key(
                    "fix", ("f",), "fix", "Apply the fix of the first finding that has one.", 5, _needs_fix, quiet=True
                ),
                keys.Key("edit", ("e",), "edit", "Edit the newest override.", 7, _needs_overrides, quiet=True),
                keys.Key("form", ("E",), "all keys", "Edit every key of the layout as a form.", 0, _needs_layout),
                keys.Key(
                    "sweep", ("S",), "sweep", "Give settings several values, each a run: train.seed=1,2,3 --at-once 2."
                ),
                keys.Key(
                    "drop", ("d",), "drop", "Drop the sweep, or the newest override.", 8, _needs_overrides, quiet=True
                ),
                keys.Key("open", ("o",), "open", "Launch a file: your own script, or a layout, by its path.", 6),
                keys.Key(
                    "auto", ("H",), "hands-off", "Launch it so that it goes on by itself after faults.", 0, _needs_one
                ),
                keys.Key("filter", ("/",), "filter", "Show only presets with these words.", 9),
                keys.Key("copy", ("y",), "copy", "Copy the commands, or the script where it is shown."),
            ),
        ),
        keys.LIST,
        keys.EVERYWHERE,
    )
)
