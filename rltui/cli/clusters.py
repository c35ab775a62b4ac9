"""``rltui clusters``: list the clusters, and say where each of their settings comes from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from rltui.cli.output import add_json, answer, columns, is_agreed, talk
from rltui.cluster.open_transport import choose_way
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import Profile
from rltui.cluster.profile_files import profile_files, trust
from rltui.cluster.profiles import BUILTIN, Profiles, as_keys, load_profiles
from rltui.errors import RltuiError, UsageError
from rltui.paths import home_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="CLUSTER", help="show every key of one, and where it comes from")
    parser.add_argument("--trust", action="store_true", help="use the file .rltui/clusters.yaml of this project")
    parser.add_argument("-y", "--yes", action="store_true", help="with --trust: do not ask")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """List the clusters, or show one; nothing is asked over the network."""
    if options.trust:
        return _trust(options.yes)
    profiles = load_profiles()
    if options.name:
        _show(profiles, profiles.get(options.name), options)
        return 0
    for note in profiles.notes:
        talk(plain(short(note)))
    answer(options, _all(profiles), _table(profiles))
    return 0


def _table(profiles: Profiles) -> Iterable[str]:
    rows: list[tuple[str, ...]] = [
        (
            name,
            profile.scheduler,
            profile.host or "this machine",
            profile.partition or "–",
            profile.gpu or "–",
            ", ".join(_kinds(profiles, name)),
        )
        for name, profile in profiles.by_name.items()
    ]
    rows += [(name, "–", "has problems", "–", "–", "–") for name in profiles.broken if name not in profiles.by_name]
    return columns(("cluster", "scheduler", "where", "partition", "gpu", "from"), rows)


def _kinds(profiles: Profiles, name: str) -> list[str]:
    """``site``, ``user``, ``project``: who has a say in this profile."""
    kinds = {file.path: file.kind for file in profiles.files}
    origins = [origin.rpartition(":")[0] for origin in profiles.origins.get(name, {}).values()]
    return list(dict.fromkeys(kinds[path] for path in origins if path in kinds)) or [BUILTIN]


def _show(profiles: Profiles, profile: Profile, options: argparse.Namespace) -> None:
    origins = profiles.origins.get(profile.name, {})
    way = _way(profile)
    told = {**msgspec.to_builtins(profile), "origins": origins, "way": way[0], "way_reason": way[1]}
    keys = {key: value for key, value in as_keys(profile).items() if key != "name"}
    rows = [
        (key, line, short(origins.get(key, "default"))) if index == 0 else ("", line, "")
        for key, value in keys.items()
        for index, line in enumerate(_text(value))
    ]
    table = [f"  {line}" for line in columns(("key", "value", "from"), rows)]
    answer(options, {"cluster": told}, [profile.name, *table, f"  way there: {way[0]}, because {way[1]}"])


def _way(profile: Profile) -> tuple[str, str]:
    try:
        way = choose_way(profile)
    except RltuiError as error:
        return "none", plain(str(error))
    return way.name, way.reason


def _text(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [plain(f"{key}={item}") for key, item in value.items()]
    if isinstance(value, list):
        return [plain(_bad_node(item) if isinstance(item, dict) else str(item)) for item in value]
    return [plain(str(value).lower() if isinstance(value, bool) else str(value))]


def _bad_node(item: dict[str, str]) -> str:
    until = f", until {item['until']}" if item.get("until") else ""
    return f"{item['node']}: {item.get('reason') or 'no reason given'}{until}"


def short(path: str) -> str:
    """``path`` with the user's home as ``~``."""
    home = f"{home_dir()}/"
    return f"~/{path[len(home) :]}" if path.startswith(home) else path


def _all(profiles: Profiles) -> dict[str, Any]:
    clusters = [
        {**msgspec.to_builtins(profile), "origins": profiles.origins.get(name, {})}
        for name, profile in profiles.by_name.items()
    ]
    files = [{"path": file.path, "kind": file.kind, "used": file.used, "note": file.note} for file in profiles.files]
    problems = [msgspec.to_builtins(problem) for problem in profiles.problems]
    return {"clusters": clusters, "files": files, "problems": problems}


def _trust(yes: bool) -> int:
    """Show the project's file and use it from now on, if the user wants."""
    [*_, last] = profile_files()
    if last.kind != "project":
        raise UsageError("There is no .rltui/clusters.yaml here or above.", "Go to the project that has one.")
    if last.used:
        talk(f"{short(last.path)} is trusted already.")
        return 0
    if not last.exists:
        raise UsageError(f"{last.path} {last.note}.")
    for line in last.text.splitlines():
        talk(f"  | {plain(line)}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("Nobody is there to confirm.", "Add --yes once you have read it.")
        if not is_agreed(f"Its lines can run commands as you. Use {short(last.path)} from now on?"):
            raise UsageError("Not done.")
    trust(last)
    talk(f"{short(last.path)} is used from now on; if it changes, you are asked again.")
    return 0
