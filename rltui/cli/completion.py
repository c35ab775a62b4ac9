"""``rltui completion``: print shell completion for bash, zsh, fish or tcsh."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from rltui.cli.output import print_lines
from rltui.cli.verbs import load
from rltui.errors import UsageError
from rltui.service.verb_table import VERBS

_BASH_SOURCES = """
_rltui_sources() {
  compgen -W "$(rltui completion --words sources)" -- $1
  compgen -f -- $1
}"""


# a key of a layout is not a whole word: its value follows at once
_BASH_NO_SPACE_AFTER_KEY = """
_rltui() {
  _shtab_rltui
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
  return 0
}
complete -o bashdefault -F _rltui rltui"""
_KINDS = {
    "RUN": "runs",
    "FILE": "files",
    "CLUSTER": "clusters",
    "key=value": "keys",
    "key=value,value": "keys",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell, and what the printed script asks at each press of tab."""
    parser.add_argument("shell", nargs="?", choices=("bash", "zsh", "fish", "tcsh"))
    parser.add_argument("--words", choices=sorted(_WORDS), help="the words that there are now, as the script asks")


def run(options: argparse.Namespace) -> int:
    """Print a completion script: ``source <(rltui completion bash)``."""
    if options.words:
        print_lines(_WORDS[options.words]())
        return 0
    if not options.shell:
        raise UsageError("Name a shell.", "source <(rltui completion bash)")
    if options.shell == "fish":
        print_lines(_fish())
        return 0
    import shtab

    parser = argparse.ArgumentParser(prog="rltui")
    verbs = parser.add_subparsers()
    for verb in VERBS:
        own = verbs.add_parser(verb.name, help=verb.help)
        load(verb).add_arguments(own)
        for action in own._actions:
            if kind := _kind(action):
                action.complete = _completed(kind)  # type: ignore[attr-defined]  # read by shtab
    print_lines(
        [shtab.complete(parser, options.shell), *([_BASH_NO_SPACE_AFTER_KEY] if options.shell == "bash" else [])]
    )
    return 0


def _fish() -> Iterator[str]:
    """The lines of a script for fish, which shtab does not write: ``rltui completion fish | source``."""
    yield "complete -c rltui -f"
    for verb in VERBS:
        own = argparse.ArgumentParser()
        load(verb).add_arguments(own)
        yield f"complete -c rltui -n __fish_use_subcommand -a {verb.name} -d {_fish_quoted(verb.help)}"
        for action in own._actions:
            words = _fish_words(action)
            if action.option_strings or words:
                yield f"complete -c rltui -n '__fish_seen_subcommand_from {verb.name}'{_fish_option(action)}{words}"


def _fish_option(action: argparse.Action) -> str:
    names = (f" -{'l' if one.startswith('--') else 's'} {one.lstrip('-')}" for one in action.option_strings)
    takes_word = ""
    if action.option_strings and action.nargs != 0:
        takes_word = " -r" if _kind(action) in ("", "files", "sources") and not action.choices else " -x"
    about = f" -d {_fish_quoted(action.help % vars(action))}" if action.option_strings and action.help else ""
    return f"{''.join(names)}{takes_word}{about}"


def _fish_words(action: argparse.Action) -> str:
    if action.choices:
        return f" -a {_fish_quoted(' '.join(map(str, action.choices)))}"
    kind = _kind(action)
    files = " -F" if kind in ("files", "sources") else ""
    return files + (f" -a '(rltui completion --words {kind})'" if kind and kind != "files" else "")


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _kind(action: argparse.Action) -> str:
    """Which words an argument takes, by its name and what stands for it in the help; empty: shtab's own choice."""
    if action.dest in ("cluster", "code"):
        return f"{action.dest}s"
    shown = action.metavar if isinstance(action.metavar, str) else ""
    return "sources" if "PRESET" in shown else _KINDS.get(shown, "")


def _completed(kind: str) -> Any:
    """How a shell asks for the words of a kind; bash adds files to presets and keys."""
    import shtab

    if kind == "files":
        return shtab.FILE
    command = shtab.cmd(f"rltui completion --words {kind}")
    if kind == "sources" and isinstance(command, dict):
        return {**command, "bash": "_rltui_sources", "preamble": {"bash": _BASH_SOURCES}}
    return command


def _sources() -> Iterator[str]:
    """Presets, and the keys of a layout: words of a verb may be either."""
    from rltui.layout.presets import preset_files

    yield from (name for name, _ in preset_files())
    yield from _keys()


def _keys() -> Iterator[str]:
    """The keys of a layout with the sign that follows them."""
    from rltui.layout.convert import all_keys
    from rltui.layout.schema import Layout

    yield from (f"{key}=" for key in all_keys(Layout))


def _codes() -> Iterator[str]:
    from rltui.check.catalog import RULES
    from rltui.diagnose.index import CAUSES

    yield from sorted(RULES)
    yield from sorted(CAUSES)


def _clusters() -> Iterator[str]:
    from rltui.cluster.profiles import load_profiles

    yield from sorted(load_profiles().by_name)


def _runs() -> Iterator[str]:
    """Runs as last seen on each cluster; no cluster is asked, for a press of tab must not wait."""
    from rltui.paths import cache_dir
    from rltui.service.last_rows import LastRows
    from rltui.watch.snapshots import names_of

    rows = (run for name in _clusters() for run in LastRows(cache_dir(), name).last().runs)
    yield from names_of(run.identity for run in rows).values()


_WORDS = {"sources": _sources, "keys": _keys, "codes": _codes, "clusters": _clusters, "runs": _runs}
