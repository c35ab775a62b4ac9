"""What a test such as ``[ "$A" -eq 1 ]`` comes to, where that can be known without running anything."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

from rltui.importers import shell_syntax as syntax
from rltui.importers.shell_arithmetic import evaluate
from rltui.importers.shell_expand import expand_words
from rltui.importers.shell_scope import Scope
from rltui.importers.values import HOLE, to_int

_ARGUMENT = re.compile(r"\"?\$\{?(\d)\}?\"?")
_COUNT = re.compile(r"\"?\$\{#(\w+)\[[@*]\]\}\"?")
GPU_WORDS = frozenset({"gpu", "cuda", "nvidia"})
"""What scripts call the kind of device that is taken where only a run shows which there is."""
_TESTS = frozenset({"[", "[[", "test", "!", "grep", "egrep", "which", "type", "hash", "pgrep", "diff", "cmp"})
"""Commands that are there for their outcome, which only a run shows unless they compare what is known."""
_SAME = ("=", "==", "!=")
_QUOTED = re.compile(r"(\"[^\"]*\"|'[^']*')")
_WILD = re.compile(r"[*?\[]")
_OTHER_DEVICES = frozenset({"npu", "xpu", "hpu", "tpu", "musa", "ascend"})
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}


def is_test(node: syntax.Node) -> bool:
    """Whether a node is a test, whose outcome matters, rather than a command that is meant to succeed."""
    if isinstance(node, syntax.AndOr):
        return is_test(node.right) or (node.operator != "|" and is_test(node.left))
    if not isinstance(node, syntax.Command) or not node.words:
        return False
    head, *rest = node.words
    return head in _TESTS or (head == "command" and rest[:1] in (["-v"], ["-V"]))


def succeeds(node: syntax.Node, scope: Scope) -> bool | None:
    """Whether a node succeeds, where that is known."""
    if isinstance(node, syntax.Group) and node.body:
        return succeeds(node.body[-1], scope)
    if isinstance(node, syntax.Command):
        return truth(node.words, scope, node.line)
    if not isinstance(node, syntax.AndOr) or node.operator == "|":
        return None
    left, right = succeeds(node.left, scope), succeeds(node.right, scope)
    settles = node.operator == "||"
    if settles in (left, right):
        return settles
    return None if None in (left, right) else not settles


def asks_for_device(node: syntax.Node, scope: Scope) -> bool:
    """Whether a test asks a value that is not known for a kind of device, as ``[ "$DEVICE" = npu ]`` does."""
    if not isinstance(node, syntax.Command) or not is_test(node) or len(node.words) < 4:
        return False
    left, operator, right = node.words[1:4]
    line = node.line
    return operator in _SAME and _is_device(_text(left, scope, line), _text(right, scope, line))


def _is_device(left: str, right: str) -> bool:
    return left == HOLE and right in GPU_WORDS | _OTHER_DEVICES


def truth(raws: Sequence[str], scope: Scope, line: int) -> bool | None:
    """Whether a command succeeds; None where only a run would show it."""
    if not raws:
        return None
    head = raws[0]
    if "$" in head and len(raws) == 1:
        head = _text(head, scope, line)  # ``if $USE_KL; then``
    if head.startswith("(("):
        value = evaluate(" ".join(expand_words([f'"{head[2:-2]}"'], scope, line)), scope.get)
        return None if HOLE in value else value != "0"
    if head == "!":
        inner = truth(raws[1:], scope, line)
        return None if inner is None else not inner
    if head in ("true", ":", "false"):
        return head != "false"
    if head not in ("[", "[[", "test"):
        return None
    inside = list(raws[1:-1] if raws[-1] in ("]", "]]") else raws[1:])
    return _any(inside, scope, line)


def _any(raws: list[str], scope: Scope, line: int) -> bool | None:
    return _joined(raws, ("||", "-o"), True, lambda part: _all(part, scope, line))


def _all(raws: list[str], scope: Scope, line: int) -> bool | None:
    return _joined(raws, ("&&", "-a"), False, lambda part: _single(part, scope, line))


def _joined(
    raws: list[str], operators: tuple[str, str], settles: bool, judge: Callable[[list[str]], bool | None]
) -> bool | None:
    """The verdict over parts between ``operators``; one part that is ``settles`` decides it."""
    parts: list[list[str]] = [[]]
    for raw in raws:
        if raw in operators and parts[-1]:
            parts.append([])
        else:
            parts[-1].append(raw)
    verdicts = [judge(part) for part in parts]
    if settles in verdicts:
        return settles
    return None if None in verdicts else not settles


def _single(raws: list[str], scope: Scope, line: int) -> bool | None:
    if raws[:1] == ["!"]:
        inner = _single(raws[1:], scope, line)
        return None if inner is None else not inner
    if not raws:
        return False
    if len(raws) == 1:
        value = _text(raws[0], scope, line)
        return None if HOLE in value else value != ""
    if len(raws) == 2:
        argument = _ARGUMENT.fullmatch(raws[1])
        if argument and scope.get(argument[1]) is None and raws[0] in ("-z", "-n"):
            return raws[0] == "-z"  # arguments that nobody gave are absent
        return _unary(raws[0], _operand(raws[1], scope, line))
    counted = _COUNT.fullmatch(raws[0])
    if counted and raws[1:] in (["-gt", "0"], ["-ne", "0"]) and any(map(_is_word, scope.items(counted[1]))):
        return True
    if len(raws) == 3:
        return _compare(_text(raws[0], scope, line), raws[1], raws[2], scope, line)
    return None


def _is_word(item: str) -> bool:
    """Whether an item of an array is at least one word, known or not."""
    return bool(item) and not item.startswith(HOLE)


def _text(raw: str, scope: Scope, line: int) -> str:
    return _operand(raw, scope, line) or ""


def _operand(raw: str, scope: Scope, line: int) -> str:
    return " ".join(expand_words([raw], scope, line))


def _unary(operator: str, value: str) -> bool | None:
    if operator not in ("-z", "-n") or HOLE in value:
        return None
    return (value == "") == (operator == "-z")


def _compare(left: str, operator: str, raw: str, scope: Scope, line: int) -> bool | None:
    right = _text(raw, scope, line)
    if operator in _SAME and _is_device(left, right):
        return (right in GPU_WORDS) == (operator != "!=")
    if HOLE in left or HOLE in right:
        return None
    if operator in _NUMBERS:
        numbers = to_int(left), to_int(right)
        if numbers[0] is None or numbers[1] is None:
            return None
        return _NUMBERS[operator](numbers[0], numbers[1])
    if operator in _SAME:
        return matches(left, raw, scope, line) == (operator != "!=")
    return None


def matches(text: str, raw: str, scope: Scope, line: int) -> bool:
    """Whether ``text`` is as a pattern says, of which what stands in quotes counts as it stands."""
    parts = [(part, _text(part, scope, line)) for part in _QUOTED.split(raw)]
    pattern = "".join(_WILD.sub(r"[\g<0>]", value) if _QUOTED.fullmatch(part) else value for part, value in parts)
    return fnmatch.fnmatchcase(text, pattern)
