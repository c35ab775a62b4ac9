"""slime's and miles' Python launchers: the flags in ``execute_train(train_args=…)``, read from the syntax tree.

The file is parsed, never imported or run. Defaults of its dataclasses are taken, as a launch without arguments would.
"""

from __future__ import annotations

import ast
import copy
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltui.errors import UsageError
from rltui.importers import slime
from rltui.importers.arguments import from_flags
from rltui.importers.facts import Facts
from rltui.importers.python_values import fits, known, merged_text, value_of
from rltui.importers.script import Script
from rltui.importers.shell_run import Reading, Started
from rltui.importers.slurm_lines import SlurmJob
from rltui.importers.values import HOLE

_CALLS = ("execute_train", "execute_train_npu")
_INHERITED = {
    "num_nodes": 1, "extra_args": "", "extra_env_vars": "", "cuda_core_dump": False, "output_dir": "/shared_data",
}  # fmt: skip
"""Fields of the launchers' common base class (``ExecuteTrainConfig``), with its defaults."""
MAX_STEPS = 20_000


def from_python(text: str, path: Path) -> list[Facts]:
    """What each training needs that a Python launcher starts.

    Raises:
        UsageError: Not Python, or it goes on without end.
    """
    follower = _Follower(parsed(text, path))
    try:
        follower.run()
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deep to be read.") from error
    return [_facts(path, call) for call in follower.calls]


def parsed(text: str, path: Path) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        UsageError: Not Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd literals are the launcher's affair
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read as Python: {str(error)[:200]}.") from error


def _facts(path: Path, call: dict[str, Any]) -> Facts:
    text = call.get("train_args", HOLE)
    try:
        words = shlex.split(text, comments=False) if isinstance(text, str) else [HOLE]
    except ValueError as error:
        raise UsageError(f"{path}: train_args cannot be split into words: {error}.") from error
    per_node = call.get("num_gpus_per_node", HOLE)
    started = Started(("ray", "start", "--head", "--num-gpus", str(per_node)), {}, call["line"])
    script = Script(path, Reading((started,), {}, ()), SlurmJob())
    return slime.from_flags_of(script, from_flags(words))


class _BlockEndError(Exception):
    """A return or raise ends the block."""


class _Follower:
    """Follows the functions of a module that call ``execute_train``."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.calls: list[dict[str, Any]] = []
        self.steps = 0
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.module: dict[str, Any] = {name: _Maker(self, node) for name, node in self.classes.items()}

    def run(self) -> None:
        """Follow the module's own statements, then each function that launches."""
        self.block([node for node in self.tree.body if not isinstance(node, ast.ClassDef)], self.module)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and _launches(node):
                names = dict(self.module)
                for argument in node.args.args:
                    names[argument.arg] = self.parameter(argument)
                self.block(node.body, names)

    def parameter(self, argument: ast.arg) -> Any:
        """An object of the annotated dataclass with its defaults; a hole for anything else."""
        kind = argument.annotation.id if isinstance(argument.annotation, ast.Name) else ""
        return self.instance(self.classes[kind]) if kind in self.classes else HOLE

    def instance(self, kind: ast.ClassDef) -> dict[str, Any]:
        """A dataclass with its defaults, after its ``__post_init__``."""
        fields: dict[str, Any] = dict(_INHERITED) if kind.bases else {}
        for base in kind.bases:
            if isinstance(base, ast.Name) and base.id in self.classes and base.id != kind.name:
                fields |= self.instance(self.classes[base.id])
        for node in kind.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                fields[node.target.id] = HOLE if node.value is None else value_of(node.value, self.module)
        for node in kind.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__post_init__":
                self.block(node.body, {**self.module, "self": fields})
        fields |= {name: value_of(value, {**self.module, "self": fields}) for name, value in _properties(kind)}
        return fields

    def block(self, body: Sequence[ast.stmt], names: dict[str, Any]) -> bool:
        """Follow statements; tells whether they go on to their end."""
        try:
            for node in body:
                self.steps += 1
                if self.steps > MAX_STEPS:
                    raise UsageError("The launcher goes on without end.")
                self.statement(node, names)
        except _BlockEndError:
            return False
        return True

    def statement(self, node: ast.stmt, names: dict[str, Any]) -> None:
        """Follow one statement: what it assigns, runs or branches into."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _assign(target, value_of(node.value, names), names)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            _assign(node.target, value_of(node.value, names), names)
        elif isinstance(node, ast.AugAssign):
            total = ast.BinOp(_loaded(node.target), node.op, node.value)
            _assign(node.target, value_of(total, names), names)
        elif isinstance(node, ast.If):
            self.choose(value_of(node.test, names), [node.body, node.orelse], names)
        elif isinstance(node, ast.Match):
            self.match(node, names)
        elif isinstance(node, ast.Return | ast.Raise):
            raise _BlockEndError
        elif isinstance(node, ast.For | ast.While | ast.With | ast.Try):
            self.doubtful(node, names)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.call(node.value, names)

    def call(self, node: ast.Call, names: dict[str, Any]) -> None:
        """Note a call that starts a training."""
        if _name(node.func) in _CALLS:
            given = {word.arg: value_of(word.value, names) for word in node.keywords if word.arg}
            given |= {"train_args": value_of(node.args[0], names)} if node.args else {}
            self.calls.append({**given, "line": node.lineno})

    def choose(self, test: Any, bodies: Sequence[Sequence[ast.stmt]], names: dict[str, Any]) -> None:
        """Follow the branch that is taken, or join what both leave where that is not known."""
        if known(test):
            if not self.block(bodies[0] if test else bodies[1], names):
                raise _BlockEndError
            return
        outcomes = []
        for body in bodies:
            inside = copy.deepcopy(names)
            if self.block(body, inside):
                outcomes.append(inside)
        if not outcomes:
            raise _BlockEndError
        _merge(names, outcomes)

    def match(self, node: ast.Match, names: dict[str, Any]) -> None:
        """Follow the first case that fits; where that is not known, join what those leave that may fit."""
        subject = value_of(node.subject, names)
        possible: list[Sequence[ast.stmt]] = []
        for case in node.cases:
            taken = fits(case.pattern, subject, names)
            if taken is False:
                continue
            sure = taken is True and case.guard is None
            if sure and not possible:
                self.choose(True, [case.body, []], names)
                return
            possible.append(case.body)
            if sure:
                break
        else:
            possible.append([])
        if len(possible) > 1:
            self.choose(HOLE, possible, names)

    def doubtful(self, node: ast.For | ast.While | ast.With | ast.Try, names: dict[str, Any]) -> None:
        """A block that may run any number of times: what it sets is not known, what it starts is."""
        once = isinstance(node, ast.With | ast.Try)
        if once:
            self.block(node.body, names)
            return
        self.choose(HOLE, [node.body, []], names)


def _launches(node: ast.FunctionDef) -> bool:
    return any(isinstance(inner, ast.Call) and _name(inner.func) in _CALLS for inner in ast.walk(node))


class _Maker:
    """What makes objects of a dataclass where the module names it."""

    def __init__(self, follower: _Follower, kind: ast.ClassDef) -> None:
        self.follower, self.kind = follower, kind

    def __call__(self, *values: Any, **given: Any) -> dict[str, Any]:
        """An object with ``values`` for its first fields and ``given`` for those named."""
        fields = [
            node.target.id
            for node in self.kind.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ]
        return self.follower.instance(self.kind) | dict(zip(fields, values, strict=False)) | given

    def __deepcopy__(self, memo: dict[int, Any]) -> _Maker:
        """Itself: a branch that is followed apart changes no class."""
        return self


def _properties(kind: ast.ClassDef) -> list[tuple[str, ast.expr]]:
    """Names of a class's properties that are one expression, and these."""
    return [
        (node.name, node.body[-1].value)
        for node in kind.body
        if isinstance(node, ast.FunctionDef)
        and any(_name(word) == "property" for word in node.decorator_list)
        and isinstance(node.body[-1], ast.Return)
        and node.body[-1].value is not None
    ]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _loaded(target: ast.expr) -> ast.expr:
    """The target of an augmented assignment as an expression."""
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target


def _assign(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, ast.Attribute):
        owner = value_of(target.value, names)
        if isinstance(owner, dict):
            owner[target.attr] = value
    elif isinstance(target, ast.Tuple):
        for item in target.elts:
            _assign(item, HOLE, names)


def _merge(names: dict[str, Any], outcomes: Sequence[dict[str, Any]]) -> None:
    """Values after branches: the same in all stays; of flags that only some add, the values become holes."""
    for name in {name for outcome in outcomes for name in outcome}:
        values = [outcome.get(name, HOLE) for outcome in outcomes]
        first = values[0]
        if all(value == first for value in values):
            names[name] = first
        elif all(isinstance(value, dict) for value in values) and isinstance(names.get(name), dict):
            _merge(names[name], values)
        elif all(isinstance(value, str) for value in values):
            names[name] = merged_text(values)
        else:
            names[name] = HOLE
