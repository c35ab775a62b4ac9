"""How the relay gets to the other side: as text over the stream that then carries its requests, without a file.

The other side runs ``python3 ... -c BOOTSTRAP``. What is sent first is a line with a length and a program of that
length; it holds the relay's modules as text, so that they can import each other and no directory is needed.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import rltui.onnode

MODULES = (
    "rundir",
    "processes",
    "relay_request",
    "relay_files",
    "relay_search",
    "relay_records",
    "relay_children",
    "relay_http",
    "relay",
)
"""Modules of ``rltui.onnode`` that make up the relay, each after those it imports."""

FLAGS = ("-I", "-S", "-u", "-X", "utf8", "-c")
"""Isolated (no user's site, no PYTHON* variables, no modules from the directory it happens to start in), and UTF-8."""

BOOTSTRAP = 'import sys;f=sys.stdin.buffer;exec(compile(f.read(int(f.readline())),"relay","exec"))'
"""Holds neither single quotes nor ``$``, ``!`` or backslashes, so every login shell takes it in single quotes."""

_LOADER = """\
import json, sys, types
package = sys.modules["rltui.onnode"] = types.ModuleType("rltui.onnode")
for name, text in json.loads({texts!r}).items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
    setattr(package, name.rpartition(".")[2], module)
module.main()
"""


def relay_argv(python: str = "python3") -> list[str]:
    """The command that a transport runs on the cluster's side with the interpreter ``python`` (3.8 or newer)."""
    return [python, *FLAGS, BOOTSTRAP]


def relay_program() -> bytes:
    """What is sent to that command before the first request."""
    return program_of(MODULES)


@cache
def program_of(modules: tuple[str, ...]) -> bytes:
    """What ``BOOTSTRAP`` reads to run the last of ``modules`` of ``rltui.onnode``, each after those it imports."""
    folder = Path(rltui.onnode.__file__).parent
    texts = {f"rltui.onnode.{name}": (folder / f"{name}.py").read_text(encoding="utf-8") for name in modules}
    program = _LOADER.format(texts=json.dumps(texts)).encode()
    return b"%d\n%s" % (len(program), program)
