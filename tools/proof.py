"""Whether the house got lighter: two revisions side by side.

``python tools/proof.py BEFORE [AFTER] [--runs BEFORE_OUTPUT AFTER_OUTPUT]`` prints a Markdown table: lines, files and
functions a room, circles of imports, and how many files five walks through the house lead through. A walk's hops are
the changes of file on the shortest way of calls between two functions. An object's method is taken for any of that name
in the files that the caller imports; a way through files that do not import each other (–) is not seen. Minutes by
folder and mutants are taken from what runs of the tests and of ``tools/mutants.py`` printed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SHORT_LINES, SMALL_LINES = 20, 40
HEAVY = ("rltui", "trainers")

WALKS: dict[str, tuple[tuple[str, str | tuple[str, ...]], ...]] = {
    "layout → sbatch": (
        ("rltui.cli.launch:run", "rltui.runs.script:render_script"),
        ("rltui.service.launch:launch", "rltui.cluster.slurm.client:"),
        ("rltui.cluster.slurm.client:", "rltui.cluster.slurm.submitting:"),
    ),
    "GPU sample → pixel": (
        ("rltui.service.live_cockpit:", "rltui.watch.hosts:HostState"),
        ("rltui.tui.screens.run:", "rltui.tui.views.gpus:"),
    ),
    "log line → fix": (
        ("rltui.cli.why:run", "rltui.diagnose.scan:Scanner"),
        ("rltui.service.fixes:", "rltui.layout.load:"),
    ),
    "SSH question → answer": (
        ("rltui.cluster.paramiko_transport:", "rltui.cluster.prompts:"),
        ("rltui.tui.controller:", "rltui.cluster.prompts:Door"),
        ("rltui.tui.app:", "rltui.tui.screens.door:"),
    ),
    "prompt → loss → weights": (
        ("trainers.grpo:Grpo.step", "trainers.rollouts:"),
        ("trainers.grpo:Grpo.step", "trainers.roles.learner:Learner.train"),
        ("trainers.objectives:", "trainers.losses:policy_loss"),
        ("trainers.grpo:Grpo.step", ("trainers.roles.transfers:", "trainers.weight_sync:Transfers")),
        ("trainers.roles.learner:Learner.send_weights", "trainers.weights:WeightSender.send"),
    ),
}
"""Each walk as its parts, from a function (of a file, where none is named) to another: what lies between is files of a
run, a process of Ray or a key that a person presses."""


class File(NamedTuple):
    """One Python file: its dotted name, its text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module


def tree_of(revision: str) -> list[File]:
    """The Python files of a revision, package files by the name of their package."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout
    found = []
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.name.endswith(".py") and (stream := archive.extractfile(member)):
                text = stream.read().decode()
                name = member.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                found.append(File(name, text, ast.parse(text)))
    return found


def room_of(name: str) -> str:
    """``rltui.watch`` of ``rltui.watch.hosts``; other folders by their first name."""
    words = name.split(".")
    return ".".join(words[:2]) if words[0] == "rltui" else words[0]


def imports_of(file: File, names: Iterable[str], *, everywhere: bool) -> dict[str, str]:
    """What the file's words stand for, ``package.module:name`` or ``package.module``, of modules among ``names``.

    Args:
        file: The file.
        names: Of all modules.
        everywhere: Also what functions and type checkers import.
    """
    found = {}
    for node in ast.walk(file.tree) if everywhere else file.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                found[one.asname or one.name] = whole if whole in names else f"{node.module}:{one.name}"
        elif isinstance(node, ast.Import):
            found.update({one.asname or one.name: one.name for one in node.names})
    return {word: target for word, target in found.items() if target.partition(":")[0] in names}


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each function of a file and of its classes, with ``Class.method`` for a name."""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for one in inner:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + one.name, one


def circles(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The groups of files that import each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        reached[start], waiting = set(), [start]
        while waiting:
            new = graph.get(waiting.pop(), set()) - reached[start]
            reached[start] |= new
            waiting += new
    groups = {frozenset(one for one in reached[start] if start in reached[one]) for start in graph}
    return [group for group in groups if len(group) > 1]


def calls(files: Sequence[File]) -> dict[str, set[str]]:
    """Who may call whom, ``module:function`` both: what a function names, in its own file or in one that it imports."""
    names = {file.name for file in files}
    methods: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for file in files:
        for name, _ in functions_of(file.tree):
            methods[file.name, name.rpartition(".")[2]].add(f"{file.name}:{name}")
    known = {whole for wholes in methods.values() for whole in wholes}
    graph = {}
    for file in files:
        imported = imports_of(file, names, everywhere=True)
        near = {file.name, *(target.partition(":")[0] for target in imported.values())}
        for name, function in functions_of(file.tree):
            meant: set[str] = set()
            for node in ast.walk(function):
                if isinstance(node, ast.Name):
                    meant |= {f"{file.name}:{node.id}", imported.get(node.id, "")}
                elif isinstance(node, ast.Attribute):
                    meant |= {whole for module in near for whole in methods.get((module, node.attr), ())}
            made = {f"{target}.__init__" for target in meant}
            graph[f"{file.name}:{name}"] = (meant | made) & known
    return graph


def walk(graph: Mapping[str, set[str]], start: str, end: str | tuple[str, ...]) -> list[str] | None:
    """The files on the way with the fewest changes of file from ``start`` to ``end``; None: no way is seen.

    Args:
        graph: Who may call whom.
        start: How the first function's name begins.
        end: How the last one's does; several where it has moved between revisions.
    """
    ways: dict[str, list[str]] = {one: [one.partition(":")[0]] for one in graph if one.startswith(start)}
    waiting = collections.deque(ways)
    best: dict[str, int] = dict.fromkeys(ways, 0)
    while waiting:
        here = waiting.popleft()
        if here.startswith(end):
            return ways[here]
        for there in graph[here]:
            module = there.partition(":")[0]
            cost = best[here] + (module != ways[here][-1])
            if cost < best.get(there, sys.maxsize):
                best[there] = cost
                ways[there] = ways[here] if module == ways[here][-1] else [*ways[here], module]
                (waiting.appendleft if module == ways[here][-1] else waiting.append)(there)
    return None


def rows(revision: str, output: str) -> dict[str, str]:
    """The table's column of a revision."""
    files = tree_of(revision)
    heavy = [file for file in files if file.name.partition(".")[0] in HEAVY]
    lines: collections.Counter[str] = collections.Counter()
    for file in files:
        lines[f"lines of {room_of(file.name)}"] += file.text.count("\n")
        lines[f"lines of {file.name.partition('.')[0]}"] += (
            file.text.count("\n") if file.name.startswith("rltui.") else 0
        )
    lengths = [(one.end_lineno or 0) - one.lineno + 1 for file in heavy for _, one in functions_of(file.tree)]
    names = {file.name for file in heavy}
    at_start, ever = (
        {file.name: {target.partition(":")[0] for target in imports_of(file, names, everywhere=all_).values()}
         for file in heavy} for all_ in (False, True)
    )  # fmt: skip
    importers = collections.Counter(target for file in ever.values() for target in file)
    found = {name: f"{count:,}" for name, count in sorted(lines.items())}
    found |= {
        "files of rltui and trainers": str(len(heavy)),
        f"files of at most {SMALL_LINES} lines": str(sum(file.text.count("\n") <= SMALL_LINES for file in heavy)),
        "files that one other imports": str(sum(count == 1 for count in importers.values())),
        "functions": f"{len(lengths):,}",
        f"functions of at most {SHORT_LINES} lines": f"{sum(one <= SHORT_LINES for one in lengths) / len(lengths):.1%}",
        "circles of imports": _circles(at_start),
        "the same with late imports and types": _circles(ever),
    }
    graph = calls(heavy)
    for title, parts in WALKS.items():
        ways = [walk(graph, *part) for part in parts]
        found[f"hops of {title}"] = " + ".join("–" if way is None else str(len(way) - 1) for way in ways)
    return found | printed(output)


def _circles(graph: Mapping[str, set[str]]) -> str:
    found = circles(graph)
    return f"{len(found)} ({sum(map(len, found))} files)"


def printed(output: str) -> dict[str, str]:
    """Minutes of tests by folder and mutants, from the output of runs."""
    found = {}
    for line in re.findall(r"minutes: (.*)", output)[-1:]:
        found = {f"minutes of tests/{folder}": spent for folder, spent in re.findall(r"(\w+) ([\d.]+)", line)}
    return found | {
        f"mutants noticed {how}": share for share, how in re.findall(r"(\d+ of \d+) noticed (by .*)", output)
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Two revisions of the house side by side.")
    parser.add_argument("before", help="revision of git")
    parser.add_argument("after", nargs="?", default="HEAD", help="revision of git (default: HEAD)")
    parser.add_argument(
        "--runs", nargs=2, type=Path, metavar="FILE", help="what runs of the tests printed, before, after"
    )
    options = parser.parse_args()
    outputs = [file.read_text(encoding="utf-8", errors="replace") for file in options.runs or ()] or ["", ""]
    before, after = (rows(*pair) for pair in zip((options.before, options.after), outputs, strict=True))
    print(f"| | {options.before} | {options.after} |\n|---|--:|--:|")
    for name in dict.fromkeys((*before, *after)):
        print(f"| {name} | {before.get(name, '–')} | {after.get(name, '–')} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
