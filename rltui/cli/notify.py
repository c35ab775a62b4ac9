"""``rltui notify``: say who is told of a cluster's runs and how, or try it."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

import msgspec

from rltui.cli.output import add_cluster, add_json, print_json, print_lines, talk
from rltui.cluster.prompts import TerminalPrompter

if TYPE_CHECKING:
    from rltui.cluster.profile import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--test", action="store_true", help="tell a test by every channel, and say what came of each")
    add_cluster(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print what the cluster's profile says of telling people; with ``--test``, tell them."""
    from rltui.service.context import open_context
    from rltui.service.telling import try_channels

    with open_context(options.cluster, TerminalPrompter()) as context:
        profile = context.cluster.profile
        results = try_channels(context.cluster) if options.test else []
    ok = all(one.ok for one in results)
    if options.json:
        about = {"cluster": profile.name, "notify": profile.notify, "tested": options.test, "ok": ok}
        print_json({"schema": 1, **about, "results": msgspec.to_builtins(results)})
        return 0 if ok else 1
    if not profile.notify.for_nodes():
        told = f"its terminal gets: {profile.notify.terminal}"
        talk(f"Of runs on {profile.name} only an open cockpit tells ({told}); its profile's notify: names nobody else.")
        talk("  docs/notifications.md has the keys; `rltui clusters` lists the files.")
    elif not options.test:
        print_lines(_lines(profile))
        talk("`rltui notify --test` tries each.")
    width = max((len(one.channel) for one in results), default=0)
    print_lines(f"{'✓' if one.ok else '✗'} {one.channel:<{width}}  {one.detail}" for one in results)
    return 0 if ok else 1


def _lines(profile: Profile) -> list[str]:
    """The settings, a line each."""
    notify = profile.notify
    words = {
        "events": ", ".join(notify.events),
        "terminal": notify.terminal,
        "desktop": "yes" if notify.desktop else "",
        "webhook": f"where ${notify.webhook} of env_file points" if notify.webhook else "",
        "mail": ", ".join(notify.mail),
        "command": shlex.join(notify.command),
    }
    return [f"{key:<8}  {value}" for key, value in words.items() if value]
