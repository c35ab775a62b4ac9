"""What `rltui import` is worth: published launch scripts that work, by the settings that they make.

``tests/fixtures/import/gate`` has one table a framework and one row a script: where its GPUs go, as counted from the
script by hand or by the framework's own arithmetic, and the settings that say so. A script in the framework's own
syntax is made of a row, imported, and checked on the card that nearly all of them were run on.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from rltui.check.script import check_script_text
from rltui.importers.read import Imported, import_text

if TYPE_CHECKING:
    from score import Score

GATE = Path(__file__).parents[1] / "fixtures" / "import" / "gate"
FACTS = (
    "id", "published", "program", "nodes", "gpus_per_node",
    "trainer", "rollout", "tensor_parallel", "engines", "needed",
)  # fmt: skip
CARD = "hardware.gpu=H100"
SPLIT = {
    "trainer": "trainer_gpus",
    "rollout": "rollout_gpus",
    "tensor_parallel": "rollout_tp",
    "engines": "rollout_engines",
    "needed": "needed_gpus",
}
"""Columns that say where GPUs go, and what an import calls them."""


@dataclasses.dataclass(frozen=True)
class Script:
    """One published script: its facts by column, and its settings by the framework's own key."""

    framework: str
    facts: dict[str, str]
    settings: dict[str, str]

    @property
    def works(self) -> bool:
        """Whether nothing was found against it when its GPUs were counted."""
        return self.facts["published"] == "fits"


def scripts() -> Iterator[Script]:
    """Every row of every table."""
    for table in sorted(GATE.glob("*.csv")):
        with table.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                settings = {key: value for key, value in row.items() if key not in FACTS and value}
                yield Script(table.stem, {key: row[key] for key in FACTS}, settings)


def source(script: Script) -> tuple[str, Path]:
    """A script that makes these settings in its framework's syntax, and where it stands."""
    if script.framework in ("nemo-rl", "areal", "roll", "trinity"):
        values = _nested(script.settings)
        values |= {"experiment_name": "one"} if script.framework == "areal" else {}
        return yaml.safe_dump(values), Path("recipe.yaml")
    if script.framework == "prime-rl":
        # engines with no settings of their own stand in an empty table, for which a row has no column
        bare = script.facts["rollout"] not in ("", "0") and not any(
            key.startswith("inference.") for key in script.settings
        )
        return _toml(script.settings) + "[inference]\n" * bare, Path("rl.toml")
    return _command(script), Path("run.sh")


def _command(script: Script) -> str:
    facts, settings = script.facts, script.settings
    program = facts["program"] or "main"
    if script.framework in ("verl", "skyrl"):
        return f"python3 -m {program} " + " ".join(f"'{key}={value}'" for key, value in settings.items())
    words = " ".join(f"--{key}" if value == "+" else f"--{key} {value}" for key, value in settings.items())
    if script.framework == "open-instruct":
        program = f"mason.py --num_nodes {facts['nodes']} --gpus {facts['gpus_per_node']} -- open_instruct/{program}"
    if script.framework == "trl":
        return f"{program} {words}"  # the launcher with its own flags
    starter = "python3 -m" if program.startswith("openrlhf.") else "python3"
    return f"{starter} {program} {words}"


def _nested(settings: dict[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, text in settings.items():
        *parents, last = key.split(".")
        place = values
        for parent in parents:
            inner = place.setdefault(parent, {})
            assert isinstance(inner, dict)
            place = inner
        place[last] = yaml.safe_load(text)
    return values


def _toml(settings: dict[str, str]) -> str:
    lines = []
    for key, text in settings.items():
        plain = text in ("true", "false") or text.replace(".", "", 1).isdigit()
        lines.append(f"{key} = {text if plain else repr(text)}")
    return "\n".join(lines) + "\n"


def false_errors(script: Script) -> tuple[str, ...]:
    """What ``rltui check`` calls an error of a script that works; an import that makes no layout counts as one.

    The framework's own assertions are asked as well as the rules about layouts.
    """
    report = check_script_text(*source(script), given=[CARD])
    wrong = ("error", "L002")
    return tuple(f"{one.code} {one.message}" for one in report.findings if one.severity in wrong or one.code in wrong)


def split(script: Script, found: Imported) -> dict[str, str]:
    """``right``, ``unknown`` or ``wrong`` for each number of the GPU split that the facts have."""
    said = {column: getattr(found, name) for column, name in SPLIT.items() if script.facts[column]}
    return {
        column: "unknown" if number is None else "right" if number == int(script.facts[column]) else "wrong"
        for column, number in said.items()
    }


def score() -> Score:
    """Shares of scripts that check clean, and of numbers of the GPU split that are right and wrong, in percent."""
    from score import Figure, Score

    every = [(script, import_text(*source(script))) for script in scripts()]
    working = [script for script, _ in every if script.works]
    errors = {script.facts["id"]: wrong for script in working if (wrong := false_errors(script))}
    verdicts = [(script, column, word) for script, found in every for column, word in split(script, found).items()]
    shares = {
        word: 100 * sum(verdict == word for *_, verdict in verdicts) / len(verdicts) for word in ("right", "wrong")
    }
    clean = 100 * (len(working) - len(errors)) / len(working)
    worst = [(f"{identity} is called wrong", found[0]) for identity, found in errors.items()]
    worst += [(script.facts["id"], f"{column} is wrong") for script, column, verdict in verdicts if verdict == "wrong"]
    return Score(
        "import",
        (
            Figure("working scripts without an error (%)", clean, 99.9, True, len(working)),
            Figure("numbers of the GPU split that are right (%)", shares["right"], 99.3, True, len(verdicts)),
            Figure("numbers of the GPU split that are wrong (%)", shares["wrong"], 0.5, False, len(verdicts)),
        ),
        tuple(worst),
    )
