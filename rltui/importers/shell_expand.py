"""Expanding words: variables with their defaults, arrays, arithmetic; a command substitution leaves a hole."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.importers.shell_arithmetic import assigned, evaluate
from rltui.importers.shell_brackets import BRACKETS, alternatives, quotable
from rltui.importers.shell_filters import transformed
from rltui.importers.shell_lexer import ScriptError, bracket_end
from rltui.importers.shell_scope import Scope
from rltui.importers.values import HOLE, HOLES, NODE, to_int

MAX_TEXT = 100_000
MAX_NESTING = 30
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]")
_SLICE = re.compile(r":([^:]+)(?::([^:]+))?\Z")
_BRACED = re.compile(r"(#|!)?([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(\[[^\]]*\])?(.*)\Z", re.DOTALL)
_ANSI = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "e": "\x1b", "\\": "\\", "'": "'", '"': '"'}
_BACKTICKS = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_PLAIN = re.compile(r"[^\\'\"`$]+")


def expand_words(raws: Sequence[str], scope: Scope, line: int = 0) -> list[str]:
    """Words after expansion and splitting.

    Raises:
        ScriptError: The text grows without end, or nests too deep.
    """
    fields: list[str] = []
    for raw in (one for word in raws for one in alternatives(word)):
        fields.extend(_Expansion(scope, line).fields(raw))
    return fields


def expand_text(raw: str, scope: Scope, line: int = 0) -> str:
    """One text after expansion, as on the right of an assignment."""
    expansion = _Expansion(scope, line)
    expansion.run(raw, splitting=False)
    return " ".join(expansion.done())


class _Expansion:
    """Builds the fields of one word."""

    def __init__(self, scope: Scope, line: int) -> None:
        self.scope = scope
        self.line = line
        self.finished: list[str] = []
        self.current: str | None = None
        self.splitting = True
        self.in_default = False
        self.no_items = False

    def fields(self, raw: str) -> list[str]:
        """The words that ``raw`` becomes, after bash's field splitting."""
        self.run(raw, splitting=True)
        return self.done()

    def done(self) -> list[str]:
        """The words built so far, the one that is under way among them."""
        return self.finished if self.current is None else [*self.finished, self.current]

    def run(self, raw: str, splitting: bool) -> None:
        """Expand all of ``raw``; its text may name variables that name others, down to a bound."""
        self.scope.nesting += 1
        if self.scope.nesting > MAX_NESTING:
            raise ScriptError(self.line, "variables or defaults refer to each other without end")
        self.splitting = splitting
        self.pieces(raw)
        self.scope.nesting -= 1

    def pieces(self, raw: str) -> None:
        """Read ``raw`` piece by piece."""
        at = 0
        while at < len(raw):
            at = self.piece(raw, at, quoted=False)

    def piece(self, raw: str, at: int, quoted: bool) -> int:
        """Read one piece at ``at`` and return the position after it."""
        char = raw[at]
        if char == "\\":
            return self.escaped(raw, at, quoted)
        if char == "'" and not quoted:
            end = raw.find("'", at + 1)
            end = len(raw) if end < 0 else end
            self.add(raw[at + 1 : end])
            return end + 1
        if char == '"' and not quoted:
            return self.double_quoted(raw, at)
        if char == "`":
            match = _BACKTICKS.match(raw, at)
            self.add_value(self.scope.substitute(re.sub(r"\\([`$\\])", r"\1", match[1])) if match else HOLE, quoted)
            return match.end() if match else len(raw)
        if char == "$":
            return self.dollar(raw, at, quoted)
        match = _PLAIN.match(raw, at)
        text = match.group() if match else char
        self.add_value(text, quoted=quoted or not self.in_default)
        return at + len(text)

    def escaped(self, raw: str, at: int, quoted: bool) -> int:
        """A backslash; in double quotes it only escapes a few characters."""
        follows = raw[at + 1 : at + 2]
        if follows == "\n":
            return at + 2
        self.add(follows if not quoted or follows in '$`"\\' else f"\\{follows}")
        return at + 2

    def double_quoted(self, raw: str, at: int) -> int:
        """``"…"``; an empty one is an empty word, but ``"$@"`` without arguments is none."""
        fresh, self.no_items = self.current is None, False
        self.add("")
        at += 1
        while at < len(raw) and raw[at] != '"':
            at = self.piece(raw, at, quoted=True)
        if fresh and self.no_items and self.current == "":
            self.current = None
        return at + 1

    def dollar(self, raw: str, at: int, quoted: bool) -> int:
        """``$name``, ``${…}``, ``$(…)``, ``$((…))`` or ``$'…'``."""
        follows = raw[at + 1 : at + 2]
        if follows in BRACKETS:
            end = bracket_end(raw, at + 1, follows, BRACKETS[follows])
            inside = raw[at + 2 : end - 1]
            if follows == "{":
                self.braced(inside, quoted)
            else:
                self.add_value(self.substituted(inside), quoted)
            return end
        if follows == "'" and not quoted and (ansi := _ANSI.match(raw, at + 1)):
            self.add(_ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), ansi[1]))
            return ansi.end()
        match = _NAME.match(raw, at + 1)
        if match is None:
            self.add("$")
            return at + 1
        self.named(match.group(), quoted)
        return match.end()

    def substituted(self, inside: str) -> str:
        """The value of ``$((…))`` or ``$(…)``."""
        if inside.startswith("(") and inside.endswith(")"):
            return self.arithmetic(inside[1:-1])
        return self.scope.substitute(inside)

    def arithmetic(self, expression: str) -> str:
        """Value of an arithmetic expression."""
        text = self.nested(expression)
        value = evaluate(text, self.scope.get)
        self.scope.variables |= assigned(text, self.scope.get)
        return value

    def nested(self, raw: str) -> str:
        """A text inside an expansion, expanded itself."""
        return expand_text(raw, self.scope, self.line)

    def nested_in_quotes(self, raw: str) -> str:
        """A text inside an expansion that stands in double quotes: single quotes are characters of it."""
        return expand_text(f'"{quotable(raw)}"', self.scope, self.line)

    def named(self, name: str, quoted: bool) -> None:
        """Add the value of ``$name``, or a hole where nobody knows it."""
        if name in ("@", "*"):
            self.add_items(self.scope.items(name), quoted, name == "*")
            return
        value = self.scope.get(name)
        self.add_value(HOLE if value is None else value, quoted)

    def braced(self, inside: str, quoted: bool) -> None:
        """Add the value of ``${…}`` with its default, cut or replacement."""
        match = _BRACED.match(inside)
        if match is None:
            self.add_value(HOLE, quoted)
            return
        prefix, name, index, operation = match.groups()
        if prefix == "#":
            self.add_value(self.length(name, index), quoted)
        elif prefix == "!" and index in ("[@]", "[*]"):
            self.add_items(self.keys(name), quoted)
        elif prefix == "!":
            target = self.scope.get(name)
            known = target is not None and not index and re.fullmatch(r"[A-Za-z_]\w*", target)
            self.named(target, quoted) if known and target else self.add_value(HOLE, quoted)
        elif (index in ("[@]", "[*]") or name in ("@", "*")) and not operation:
            self.add_items(self.values(name), quoted, "*" in (name, (index or "")[1:2]))
        else:
            self.operate(name, index, operation, quoted)

    def length(self, name: str, index: str | None) -> str:
        """``${#name}``, characters of a value, and ``${#name[@]}``, words of an array."""
        if index:
            items = self.scope.items(name)
            # a part that is not known may be no word, or several
            holes = any(HOLE in item and not item.startswith(NODE) for item in items)
            unknown = holes or name not in (*self.scope.variables, "@", "*")
            return HOLE if unknown else str(len(items))
        value = self.scope.get(name)
        return HOLE if value is None or HOLE in value else str(len(value))

    def values(self, name: str) -> tuple[str, ...]:
        """The items of an array, without their keys where it has such."""
        return tuple((self.scope.keyed(name) or {}).values()) or self.scope.items(name)

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys of an array, or the places of its items."""
        items = self.scope.items(name)
        unknown = any(item.startswith(HOLE) and not item.startswith(NODE) for item in items)
        return (HOLE,) if unknown else tuple(self.scope.keyed(name) or map(str, range(len(items))))

    def operate(self, name: str, index: str | None, operation: str, quoted: bool) -> None:
        """``${name}`` with an index or an operation such as ``:-default``."""
        value = self.item(name, index) if index else self.scope.get(name)
        if not operation:
            self.add_value(HOLE if value is None else value, quoted)
            return
        kind = re.match(r":?[-=+?]", operation)
        if kind is None and (index in ("[@]", "[*]") or name in ("@", "*")):
            self.add_items(self.changed(self.values(name), operation, name == "@"), quoted)
            return
        if kind is None:
            self.add_value(self.cut(value, operation), quoted)
            return
        self.defaulted(name, value, (kind.group(), operation[kind.end() :]), quoted)

    def cut(self, value: str | None, operation: str) -> str:
        """``${name:start:length}``, ``${name%pattern}`` and ``${name/pattern/text}``."""
        if (match := _SLICE.match(operation)) and value is not None and HOLE not in value:
            place = self.slice(match, len(value))
            return HOLE if place is None else value[place]
        if "\\" in operation:
            return transformed(value, operation) if operation.startswith("/") and "$" not in operation else HOLE
        quoted = re.search(r"[\"']", operation) and re.search(r"[*?\[]", operation)
        return HOLE if quoted else transformed(value, self.nested(operation))

    def changed(self, items: tuple[str, ...], operation: str, are_arguments: bool) -> tuple[str, ...]:
        """``${name[@]:start:length}``, and each item changed as ``${name[@]%pattern}`` says."""
        if match := _SLICE.match(operation):
            place = self.slice(match, len(items) + are_arguments)
            unknown = place is None or any(item.startswith(HOLES) for item in items)
            items = ("", *items) if are_arguments else items
            return (HOLE,) if unknown or place is None else items[place]
        return tuple(self.cut(item, operation) for item in items)

    def slice(self, match: re.Match[str], length: int) -> slice | None:
        """The part that ``:start:length`` names; None where that is not known."""
        start = to_int(self.arithmetic(match[1]))
        count = to_int(self.arithmetic(match[2])) if match[2] else length
        if start is None or count is None or (start < 0 and -start > length):
            return None
        start += length if start < 0 else 0
        return slice(start, start + count if count >= 0 else length + count)

    def item(self, name: str, index: str) -> str | None:
        """One item of an array."""
        items = self.scope.items(name)
        if (keyed := self.scope.keyed(name)) is not None:
            key = self.nested(index[1:-1])
            unknown = HOLE in key or any(HOLE in other for other in keyed)
            return HOLE if unknown else keyed.get(key, "")
        position = to_int(self.arithmetic(index[1:-1]))
        known = position is not None and not any(item.startswith(HOLES) for item in items)
        return items[position] if known and position is not None and -len(items) <= position < len(items) else HOLE

    def defaulted(self, name: str, value: str | None, operation: tuple[str, str], quoted: bool) -> None:
        """``:-``, ``-``, ``:=``, ``:+`` and ``:?``."""
        kind, word = operation
        missing = value is None or (kind.startswith(":") and value == "")
        if kind.endswith("+"):
            if not missing:
                self.splice(word, quoted)
        elif not missing:
            self.add_value(value or "", quoted)
        elif kind.endswith("?"):
            self.add_value(HOLE, quoted)
        else:
            if kind.endswith("="):
                self.scope.variables[name] = self.nested(word)
            self.splice(word, quoted)

    def splice(self, word: str, quoted: bool) -> None:
        """The fields of a default; its own blanks part them, unless they are quoted."""
        if quoted:
            self.add_value(self.nested_in_quotes(word), quoted=True)
            return
        if not self.splitting:
            self.add_value(self.nested(word), quoted=True)
            return
        self.scope.nesting += 1
        if self.scope.nesting > MAX_NESTING:
            raise ScriptError(self.line, "variables or defaults refer to each other without end")
        outer, self.in_default = self.in_default, True
        self.pieces(word)
        self.in_default = outer
        self.scope.nesting -= 1

    def add(self, text: str) -> None:
        """Text that belongs to the field that is being built."""
        self.current = (self.current or "") + text
        if len(self.current) > MAX_TEXT or len(self.finished) > MAX_TEXT:
            raise ScriptError(self.line, "a variable grows without end")

    def add_value(self, value: str, quoted: bool) -> None:
        """A value; unquoted, it is split at blanks, or at what ``IFS`` says."""
        if quoted or not self.splitting:
            self.add(value)
            return
        separators = self.scope.separators
        blanks = "".join(char for char in separators if char.isspace())
        pieces = re.split(f"[{re.escape(separators)}]", value)
        # blanks part however many there are; between two commas is an empty word, but none behind the last
        pieces = [piece for piece in pieces if piece] if blanks else pieces[: len(pieces) - (pieces[-1] == "")]
        if not pieces:
            return
        if value[0] in blanks:
            self.next_field()
        self.add(pieces[0])
        for piece in pieces[1:]:
            self.next_field()
            self.add(piece)
        if value[-1] in separators:
            self.next_field()

    def next_field(self) -> None:
        """Finish the field that is being built."""
        if self.current is not None:
            self.finished.append(self.current)
            self.current = None

    def add_items(self, items: tuple[str, ...], quoted: bool, is_one: bool = False) -> None:
        """Items of an array, each a field of its own; ``is_one``: those of a star, which quotes make one."""
        if is_one and quoted:
            self.add(self.scope.separators[:1].join(items))
            return
        self.no_items = not items
        for position, item in enumerate(items):
            if position:
                self.next_field()
            self.add_value(item, quoted)
