"""``rltui launch``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.cancel import ask
from rltui.cli.output import add_cluster, add_json, print_json, talk
from rltui.cluster.prompts import TerminalPrompter
from rltui.service.context import open_context
from rltui.service.launch import launch
from rltui.service.login_node import here_instead_of_slurm

if TYPE_CHECKING:
    import argparse

    from rltui.cluster.profile import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("layout", metavar="PRESET|FILE")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--wait", action="store_true", help="follow the run to its end; exit 1 if it fails")
    parser.add_argument("--chain", type=int, default=1, metavar="N", help="N Slurm jobs, each after the one before")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before running on a login node")
    add_unchecked(parser)
    add_cluster(parser)
    add_json(parser)


def add_unchecked(parser: argparse.ArgumentParser) -> None:
    """Declare ``--unchecked``."""
    parser.add_argument("--unchecked", action="store_true", help="submit whatever the cluster says of it beforehand")


def run(options: argparse.Namespace) -> int:
    """Launch; with ``--wait`` follow the run to its end."""
    with open_context(options.cluster, TerminalPrompter()) as context:
        consent(context.cluster.profile, options.layout, given=options.yes)
        launched = launch(context, options.layout, options.overrides, chain=options.chain, unchecked=options.unchecked)
        where = f"{launched.cluster}, partition {launched.partition}" if launched.partition else launched.cluster
        talk(f"launched {launched.run_id} on {where}  (rltui attach {launched.run_id})")
        if not options.wait:
            print_json({"schema": 1, **_fields(launched)}) if options.json else print(launched.run_id)
            return 0
        from rltui.cli.follow import follow

        return follow(context, launched.run_id, options.json)


def consent(profile: Profile, what: str, *, given: bool) -> None:
    """Ask before ``what`` runs on a login node, unless consent is ``given``.

    Raises:
        UsageError: Nobody is there to ask, or the answer is no.
    """
    said = () if given else here_instead_of_slurm(profile)
    for line in said:
        talk(f"  {line}")
    if said:
        ask(f"Run {what} on this machine?")


def _fields(launched: object) -> dict[str, object]:
    import msgspec

    return dict(msgspec.to_builtins(launched))
