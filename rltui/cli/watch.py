"""``--watch`` of verbs that only look: the same print again and again, over connections that stay open."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from rltui.errors import ClusterError, UsageError
from rltui.service.all_clusters import kept_open

LEAST_S = 1.0
_HOME, _END_OF_LINE, _END_OF_SCREEN, _CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"


def watch(title: str, options: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Print what ``run`` prints every ``options.watch`` seconds, until ctrl+c.

    On a terminal each picture takes the place of the one before, cut to its height; else one follows the other. A
    cluster that goes away is said and asked again.

    Returns:
        The exit code of the last picture: ctrl+c is how it is meant to end.

    Raises:
        UsageError: The time is too short, or the words are wrong.
        ClusterError: The cluster was away from the start.
    """
    if not LEAST_S <= options.watch < float("inf"):
        raise UsageError(f"--every {options.watch:g}: the time has to be at least {LEAST_S:g} s.")
    exit_code, pictures = 0, 0
    with kept_open():
        try:
            while True:
                began = time.monotonic()
                exit_code, text = _picture(options, run, is_first=not pictures)
                _show(text, f"every {options.watch:g} s  {title}", as_json=options.json, is_first=not pictures)
                pictures += 1
                time.sleep(max(0.0, options.watch - (time.monotonic() - began)))
        except KeyboardInterrupt:
            return exit_code


class _Page(io.StringIO):
    """What one picture prints, as wide as the place where it will be shown."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _picture(
    options: argparse.Namespace, run: Callable[[argparse.Namespace], int], *, is_first: bool
) -> tuple[int, str]:
    page = _Page()
    try:
        # what is said beside a list belongs to the picture; beside JSON it would not be JSON
        with redirect_stdout(page), redirect_stderr(sys.stderr if options.json else page):
            exit_code = run(options)
    except ClusterError as error:
        if is_first:
            raise
        said = {"problem": error.message}
        return error.exit_code, json.dumps(said) if options.json else f"{page.getvalue()}rltui: {error.message}\n"
    return exit_code, page.getvalue()


def _show(text: str, title: str, *, as_json: bool, is_first: bool) -> None:
    out = sys.stdout
    if as_json:
        out.write(json.dumps(json.loads(text)) + "\n")
    elif not out.isatty():
        out.write(text if is_first else f"\n{text}")
    else:
        size = shutil.get_terminal_size()
        now = time.strftime("%H:%M:%S")
        head = f"{title[: max(0, size.columns - len(now) - 2)]:<{size.columns - len(now) - 1}}{now}"
        lines = [head, "", *text.splitlines()]
        if len(lines) > size.lines - 1:
            more = len(lines) - size.lines + 2
            lines = [*lines[: size.lines - 2], f"… {more} lines more"]
        body = "".join(f"{line}{_END_OF_LINE}\n" for line in lines)
        out.write(f"{_HOME}{_CLEAR if is_first else ''}{body}{_END_OF_SCREEN}")
    out.flush()
