"""``rltui import``: read another system's launch script into a layout, without running it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rltui.cli.output import add_json, print_json, print_lines, talk
from rltui.cli.sources import add_open, said
from rltui.errors import UsageError
from rltui.importers.facts import NO_PLACE
from rltui.importers.layout_of import as_yaml
from rltui.importers.read import Imported, import_file

if TYPE_CHECKING:
    from rltui.check.run import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a launch script (shell, Slurm) or a YAML or TOML configuration")
    parser.add_argument("--output", metavar="LAYOUT.yaml", help="write the layout there; a file that is there stays")
    add_open(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the layout, and on stderr what could not be mapped."""
    imported = _for_own_trainers(import_file(options.file, said(options)))
    report = _checked(imported)
    if options.output:
        _write(Path(options.output), imported)
    if options.json:
        print_json(_as_json(imported, report))
        return 0
    _talk_about(imported, report)
    if imported.layout is not None and not options.output:
        print_lines([as_yaml(imported.layout).rstrip("\n")])
    return 0 if imported.layout is not None else 1


def _for_own_trainers(imported: Imported) -> Imported:
    """The layout as it is launched from here on: the bundled trainers run it, whose memory is theirs."""
    if imported.layout is None:
        return imported
    own = {key: value for key, value in imported.layout.items() if key != "system"}
    return msgspec.structs.replace(imported, layout=own)


def _checked(imported: Imported) -> Report | None:
    """What the check has to say about the layout, if it loads."""
    if imported.layout is None:
        return None
    from rltui.check.run import check_text

    report = check_text(as_yaml(imported.layout), "imported")
    return report if report.readable else None


def _as_json(imported: Imported, report: Report | None) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(imported)
    findings = [msgspec.to_builtins(finding) for finding in report.findings] if report else []
    return {"schema": 1, **values, "findings": findings}


def _write(path: Path, imported: Imported) -> None:
    if imported.layout is None:
        raise UsageError(f"There is no layout to write: {imported.unmapped[0] if imported.unmapped else ''}")
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(as_yaml(imported.layout))
    except FileExistsError as error:
        raise UsageError(f"{path} is there already.", "Name another file, or remove it first.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error


def _talk_about(imported: Imported, report: Report | None) -> None:
    """The numbers, what could not be mapped, and the findings, on stderr."""
    numbers = [
        f"{word} {'unknown' if value is None else value}"
        for word, value in (
            ("needs", imported.needed_gpus),
            ("declares", imported.declared_gpus),
            ("trainer", imported.trainer_gpus),
            ("rollout", imported.rollout_gpus),
            ("tensor parallel", imported.rollout_tp),
            ("engines", imported.rollout_engines),
        )
    ]
    talk(f"{imported.dialect}: GPUs: {', '.join(numbers)}")
    left_out = [line.removesuffix(NO_PLACE) for line in imported.unmapped if line.endswith(NO_PLACE)]
    for line in imported.unmapped:
        if not line.endswith(NO_PLACE):
            talk(f"  {line}")
    if left_out:
        talk(f"  no place in a layout: {', '.join(left_out)}")
    for finding in report.findings if report else ():
        talk(f"  {finding.severity} {finding.code}: {finding.message}")
