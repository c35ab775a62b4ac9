"""``rltui setup``: describe a cluster to rltui, which finds most of it out by itself."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rltui.cli.output import talk
from rltui.cluster.machines import open_relay
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.profile_files import ProfileFile, user_file
from rltui.cluster.profiles import merge_profiles
from rltui.cluster.prompts import TerminalPrompter
from rltui.cluster.remote_paths import DEFAULT_RUN_ROOT
from rltui.cluster.ssh_host import parse_hop
from rltui.cluster.transport import NeedsAttentionError
from rltui.errors import UsageError
from rltui.hardware.gpus import find_gpu, nearest_gpus

if TYPE_CHECKING:
    from rltui.service.setup_cluster import Proposal, Site

ASKED = {
    "partition": "Partition",
    "account": "Account",
    "gpu": "GPU",
    "run_root": "Folder of the runs (large, seen by all nodes)",
    "python": "Python with the trainers' packages, as nodes see it",
}
UNSET = {"run_root": DEFAULT_RUN_ROOT, "python": Profile(name="").python}
"""What is taken for a key that the profile leaves out."""
WAY = ("transport", "host", "user", "port", "identity_file", "proxy_jump")
"""Keys of a profile that lead to the cluster."""
MOST_NAMES = 12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="what you want to call it (default: asked)")
    parser.add_argument("--host", metavar="[USER@]HOST[:PORT]", help="login node, or its alias; 'here': this machine")
    parser.add_argument(
        "--slurm-cluster", metavar="NAME", help="of several Slurm clusters that the login node reaches (-M), this one"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="take what is found, ask nothing")
    parser.add_argument(
        "--replace", action="store_true", help="with --yes: also where the file has that cluster already"
    )


def run(options: argparse.Namespace) -> int:
    """Look at the cluster, show a profile, and write it where the user agrees."""
    from rltui.service.setup_cluster import as_block, entry_of, look_around, propose, with_block, write_file

    asking = not options.yes
    if asking and not sys.stdin.isatty():
        raise UsageError("Nobody is there to answer.", "Add --yes, NAME and --host.")
    file = user_file()
    before = file.read_text("utf-8") if file.exists() else ""
    known = (entry_of(before, options.name) if options.name else None) or {}
    host = options.host
    if host is None:
        host = str(known.get("host", "here"))
        host = _ask("SSH host or alias", host) if asking else host
    way = way_to(host, known)
    talk(f"Looking at {way.get('host', 'this machine')} …")
    chosen = options.slurm_cluster or known.get("slurm_cluster")
    way |= {"slurm_cluster": chosen} if chosen else {}
    relay = open_relay(_reached_by(way), TerminalPrompter())
    try:
        site = look_around(relay)
    except NeedsAttentionError as error:
        if asking:
            raise
        # there is no profile yet that doctor could be asked with
        raise NeedsAttentionError(error.message, "Once without --yes in a terminal: it shows what is asked.") from error
    finally:
        relay.close()
    name = _checked(options.name or _name(site, way, asking))
    proposal = propose(site, way)
    for note in proposal.notes:
        talk(f"  {plain(note)}")
    old = entry_of(before, name)
    if old is not None and not asking and not options.replace:
        raise UsageError(f"{file} has a cluster {name} already.", "Add --replace, or give it another name.")
    values = _asked(site, way, proposal) if asking else proposal.values
    # what setup knows nothing of, such as env and bad_nodes, is kept
    kept = {key: value for key, value in (old or {}).items() if key not in values and key not in WAY}
    block = as_block(name, {**values, **kept})
    _refuse_bad(block)
    talk(f"\n{plain_lines(block)}")
    text = with_block(before, name, block)
    question = f"Write this to {file}?" if old is None else f"Replace {name} in {file} by this?"
    if asking and _ask(question, "yes").lower() not in ("y", "yes"):
        raise UsageError("Nothing was written.")
    write_file(file, text)
    talk(f"Written to {file}. Next: rltui doctor {name}")
    return 0


def plain_lines(text: str) -> str:
    """``text`` without control characters, its lines kept."""
    return "\n".join(plain(line) for line in text.splitlines())


def way_to(host: str, known: dict[str, Any]) -> dict[str, Any]:
    """The keys that lead to a cluster: what the user says of the host, else as the file has it.

    Args:
        host: ``here``, or ``[USER@]HOST[:PORT]``.
        known: The entry of that cluster in the file; empty where it has none.

    Raises:
        UsageError: The host is none.
    """
    if host in ("here", ""):
        return {"transport": "local"}
    try:
        hop = parse_hop(host)
    except ValueError as error:
        raise UsageError(f"The host {error}.", "rltui setup --host alice@login.example.org") from error
    told = {"host": hop.host, "user": hop.user, "port": hop.port}
    old = {key: known[key] for key in WAY if key in known and (key, known[key]) != ("transport", "local")}
    return {**old, **{key: value for key, value in told.items() if value}}


def _reached_by(way: dict[str, Any]) -> Profile:
    try:
        return msgspec.convert({"name": "new", **way}, Profile)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"The file's entry of that cluster cannot be used: {error}.", "`rltui info` names it."
        ) from error


def _name(site: Site, way: dict[str, Any], asking: bool) -> str:
    default = site.cluster_name or str(way.get("host", "")).split(".")[0] or "here"
    return _ask("Name of the cluster", default) if asking else default


def _checked(name: str) -> str:
    if not _NAME.match(name) or name == LOCAL:
        hint = "Letters, digits, dots, dashes; 'local' is this machine without a scheduler."
        raise UsageError(f"A cluster cannot be called {name[:60]!r}.", hint)
    return name


def _asked(site: Site, way: dict[str, Any], proposal: Proposal) -> dict[str, Any]:
    from rltui.service.setup_cluster import propose

    values = dict(proposal.values)
    for key, question in ASKED.items():
        if key in ("partition", "account", "gpu") and values.get("scheduler") != "slurm":
            continue
        choices = proposal.choices.get(key, ())
        if len(choices) > 1:
            talk(f"  known: {plain(', '.join(choices[:MOST_NAMES]))}")
        answer = _answered(key, question, str(values.get(key, "")), choices)
        if key == "partition" and answer != values.get(key):
            # GPUs, limits and the rest are those of the partition
            before, proposal = proposal, propose(site, way, answer)
            for note in (note for note in proposal.notes if note not in before.notes):
                talk(f"  {plain(note)}")
            values = dict(proposal.values)
        if answer:
            values[key] = answer
    line = _ask("A shell line before everything else in a job, such as `module load …`", "")
    while line:
        values.setdefault("setup_lines", []).append(line)
        line = _ask("One more", "")
    return values


def _answered(key: str, question: str, default: str, choices: Sequence[str]) -> str:
    """What the user says; a name that nothing knows is asked for once more, as a cluster may hide what it has."""
    unset = UNSET.get(key, "")
    answer = _ask(question, default, unset)
    while answer != default and (doubt := _doubt(key, answer, choices)):
        talk(f"  {plain(doubt)}. The same once more takes it all the same.")
        before, answer = answer, _ask(question, default, unset)
        if answer == before:
            break
    return answer


def _doubt(key: str, answer: str, choices: Sequence[str]) -> str:
    """Why a name may be misspelt; empty where it is known, or nothing tells."""
    if key == "gpu":
        return "" if find_gpu(answer) else f"rltui knows no card {answer}; like it: {', '.join(nearest_gpus(answer))}"
    unknown = [name for name in answer.split(",") if choices and name not in choices]
    shown = f"The cluster shows you no {key} {', '.join(unknown)}, but {', '.join(choices[:MOST_NAMES])}"
    return shown if unknown and key in ("partition", "account") else ""


def _ask(question: str, default: str, unset: str = "") -> str:
    """The answer, or ``default`` where it is empty; ``unset`` is only shown, as what holds without either."""
    shown = plain(default or unset)
    sys.stderr.write(f"{question} [{shown}]: " if shown else f"{question}: ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise UsageError("Nothing was written.")
    return line.strip() or default


def _refuse_bad(block: str) -> None:
    """The same rules as when it is read: what would be refused then is not written now."""
    file = ProfileFile(path="the answers", kind="user", used=True, text=block, sha256="new")
    problems = merge_profiles([file]).problems
    if problems:
        raise UsageError("\n".join(str(problem) for problem in problems), "Nothing was written.")
