"""``rltui help``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

from rltui.cli.output import add_json, answer
from rltui.cli.verbs import BY_NAME, load, parser_for
from rltui.errors import UsageError
from rltui.service.verb_table import VERBS_BY_AIM, Verb, verbs_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORD", help="a verb, or what you want; none: all verbs")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the verbs that do what is asked for, a verb's own help, or all verbs by what they are for.

    Raises:
        UsageError: No verb does it.
    """
    words: list[str] = options.words
    if len(words) == 1 and words[0] in BY_NAME and not options.json:
        verb = BY_NAME[words[0]]
        parser_for(verb, load(verb)).print_help()
        return 0
    found = verbs_for(words) if words else ()
    if words and not found:
        raise UsageError(f"No verb is known for {' '.join(words)[:80]!r}.", "`rltui help` lists all of them.")
    aims: Mapping[str, Sequence[Verb]] = {"": found} if words else VERBS_BY_AIM
    told = [
        {"verb": verb.name, "help": verb.help, "aim": aim}
        for aim, verbs in VERBS_BY_AIM.items()
        for verb in verbs
        if not words or verb in found
    ]
    answer(options, {"verbs": told}, listed(aims))
    return 0


def listed(aims: Mapping[str, Sequence[Verb]]) -> Iterator[str]:
    """A line a verb below what the verbs are for."""
    width = max(len(verb.name) for verbs in aims.values() for verb in verbs)
    for aim, verbs in aims.items():
        if aim:
            yield f"{aim}:"
        yield from (f"  {verb.name:<{width}}  {verb.help}" for verb in verbs)
