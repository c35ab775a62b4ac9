"""The entry point: finds the verb, runs it, and turns errors into one clear message and an exit code."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

import rltui
from rltui.cli.verbs import BY_NAME, EXIT_CODES, Parser, nearest, run_plugin, run_verb, wants_json
from rltui.errors import RltuiError, UsageError
from rltui.service.verb_table import VERBS_BY_AIM, verbs_for

INTERRUPTED = 130
INTERNAL = 70
MOST_MEANT = 3


def run() -> None:
    """Entry point of the console script ``rltui``: ``main`` on the arguments of this process."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed by whoever started this
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        # a terminal in Latin-1 has no ✗, and a file's name may be no text: escaped, as Python itself does on stderr
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run rltui with ``argv`` (without the program's name) and return its exit code."""
    words = list(argv)
    try:
        return _dispatch(words)
    except RltuiError as error:
        sys.stderr.write(f"rltui: {error}\n")
        return _told(words, error.exit_code, error.message, error.hint)
    except KeyboardInterrupt:
        sys.stderr.write("rltui: interrupted; runs go on (`rltui ps` lists them)\n")
        return _told(words, INTERRUPTED, "interrupted", "Runs go on; `rltui ps` lists them.")
    except BrokenPipeError:
        # the reader (head, less) has gone; a second failing flush at exit must not print a traceback
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 (the outermost edge: the terminal gets one line, the file everything)
        return _told(words, _report_crash(error), f"{type(error).__name__}: {str(error)[:200]}")


def _told(words: Sequence[str], exit_code: int, message: str, hint: str = "") -> int:
    """An error as a program that asked for JSON reads it, on stdout; the words for people are on stderr as always."""
    if wants_json(words):
        import json

        error = {"message": message, "hint": hint, "exit_code": exit_code}
        sys.stdout.write(json.dumps({"schema": 1, "error": error}, ensure_ascii=False) + "\n")
    return exit_code


def _dispatch(argv: list[str]) -> int:
    word = argv[0] if argv else ""
    if word in BY_NAME:
        return run_verb(BY_NAME[word], argv[1:])
    if word == "--check":
        return run_verb(BY_NAME["check"], argv[1:])
    if word and not word.startswith("-"):
        from rltui.plugins import VERBS as PLUGIN_VERBS
        from rltui.plugins import plugins

        for plugin in plugins(PLUGIN_VERBS):
            if plugin.name == word:
                return run_plugin(plugin, argv[1:])
        raise UsageError(f"There is no verb {word[:40]!r}.", _suggest(word))
    options = _parser().parse_args(argv)
    from rltui.cli.cockpit import open_cockpit

    return open_cockpit(readonly=options.readonly, ascii_only=options.ascii)


def _suggest(word: str) -> str:
    meant = [verb.name for verb in verbs_for([word])][:MOST_MEANT] or list(filter(None, [nearest(word, BY_NAME, 0.6)]))
    named = " or ".join(f"`rltui {verb}`" for verb in meant)
    return f"Did you mean {named}?" if meant else "`rltui --help` lists the verbs."


def _parser() -> Parser:
    from rltui.cli.help import listed

    verbs = "\n".join(listed(VERBS_BY_AIM))
    parser = Parser(
        prog="rltui",
        usage="rltui [--readonly] [--ascii]\n       rltui VERB …\n       rltui --check FILE… [key=value …]",
        description="A terminal run manager for RL post-training. Without a verb it opens the cockpit.",
        epilog=f"rltui VERB --help tells more, rltui help WORD finds one by what you want\n\n{verbs}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--readonly", action="store_true", help="look only: actions explain themselves and do nothing")
    parser.add_argument("--ascii", action="store_true", help="no glyphs beyond ASCII")
    parser.add_argument("--version", action="version", version=f"rltui {rltui.__version__}")
    return parser


def _report_crash(error: Exception) -> int:
    """Keep the traceback in a file, so that the terminal shows one line and nothing is lost."""
    import tempfile
    import traceback

    if os.environ.get("RLTUI_DEBUG"):
        traceback.print_exc()
        return INTERNAL
    told = f"rltui {rltui.__version__}, Python {sys.version}\n\n{''.join(traceback.format_exception(error))}"
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="rltui-crash-", suffix=".txt", delete=False) as stream:
            stream.write(told.encode("utf-8", "backslashreplace"))
        where = f"in {stream.name}"
    except OSError:  # a full disk, or no temporary folder
        sys.stderr.write(told)
        where = "above"
    sys.stderr.write(
        f"rltui: this should not have happened: {type(error).__name__}: {str(error)[:200]}\n"
        f"  The details are {where}; please report them. Runs go on.\n"
    )
    return INTERNAL


if __name__ == "__main__":
    run()
