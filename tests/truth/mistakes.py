"""Mistakes in launch scripts of other systems: one real or planted mistake an assertion, and its healthy twin.

Each base of ``mistakes.yaml`` is a script whose settings are those of a published recipe, shortened. A case changes a
few of them so that the framework stops at its start (read from its source; the tables in ``rltui/check/frameworks``
name the commits), and the twin is the nearest script that starts. A mistake counts as found where its own code is
reported; an alarm is any error of a framework's assertions on a base or a twin. The cases were written together with
the tables: they hold what is found, and say nothing of mistakes that no table has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from score import Figure, Score

from rltui.check.script import check_script_text

Settings = dict[str, object]


class Case(msgspec.Struct, frozen=True):
    """A mistake: the base it is planted in, its code, the settings that make it, and those that do not.

    A setting of None is left out.
    """

    base: str
    code: str
    broken: Settings
    healthy: Settings = {}


_DATA = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))
BASES: dict[str, Settings] = _DATA["bases"]
CASES = tuple(Case(*row) for row in _DATA["cases"])
_COMMANDS = {
    "verl": "python3 -m verl.trainer.main_ppo",
    "slime": "python3 train.py",
    "trl": "accelerate launch --num_processes 4 train_grpo.py",
    "openrlhf": "python3 -m openrlhf.cli.train_ppo_ray",
    "skyrl": "uv run -m skyrl.train.entrypoints.main_base",
    "open-instruct": "python open_instruct/grpo_fast.py",
    "easyr1": "python3 -m verl.trainer.main",
    "swift": "swift rlhf",
    "swift-megatron": "megatron rlhf",
    "oat": "python train_math.py",
}


def script(base: str, changes: Settings) -> tuple[str, Path]:
    """A base with changes, as text, and the name of the file that it would be."""
    settings = {name: value for name, value in {**BASES[base], **changes}.items() if value is not None}
    return written(base.split("-")[0] if base.startswith("verl") else base, settings)


def written(framework: str, settings: Settings, command: str = "") -> tuple[str, Path]:
    """Settings in a framework's own syntax, and the name of the file that it would be.

    Args:
        framework: Whose they are.
        settings: By the framework's own names; capitals name variables of the environment.
        command: What a script starts; the framework's usual program where it is empty.
    """
    if framework == "prime-rl":
        lines = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in settings.items()]
        return "\n".join([*lines, ""]), Path("rl.toml")
    if framework not in _COMMANDS:
        return msgspec.json.encode(_nested(settings)).decode() + "\n", Path("recipe.yaml")
    overrides = framework in ("verl", "skyrl", "easyr1")
    before = [f"{name}={value}" for name, value in settings.items() if name.isupper()]
    own = {name: value for name, value in settings.items() if not name.isupper()}
    words = [f"{name}={value}" if overrides else f"--{name} {value}".rstrip() for name, value in own.items()]
    return " \\\n    ".join([*before, command or _COMMANDS[framework], *words]) + "\n", Path("run.sh")


def _nested(settings: Settings) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in settings.items():
        *parents, last = name.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})  # type: ignore[assignment]
        place[last] = value
    return values


def codes(base: str, changes: Settings, least: str = "error") -> set[str]:
    """Codes of frameworks' assertions that the check reports of a base with changes."""
    text, path = script(base, changes)
    severities = ("error",) if least == "error" else ("error", "warning")
    found = check_script_text(text, path).findings
    return {finding.code for finding in found if finding.code[0] == "F" and finding.severity in severities}


def score() -> Score:
    """The share of mistakes that are found, and alarms on scripts that start."""
    missed = [case for case in CASES if case.code not in codes(case.base, case.broken, "warning")]
    sound = [(base, {}) for base in BASES] + [(case.base, case.healthy) for case in CASES if case.healthy]
    alarms = [(base, changes, found) for base, changes in sound if (found := codes(base, changes))]
    return Score(
        "mistakes in other systems' scripts",
        (
            Figure("mistakes found (%)", 100 * (1 - len(missed) / len(CASES)), 100.0, True, len(CASES)),
            Figure("sound scripts with an alarm (%)", 100 * len(alarms) / len(sound), 0.0, False, len(sound)),
        ),
        (
            *((f"{case.base} {case.code} {case.broken}", "missed") for case in missed[:5]),
            *((f"{base} {changes}", f"alarm {sorted(found)}") for base, changes, found in alarms[:5]),
        ),
    )
