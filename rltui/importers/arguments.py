"""Words of a command as settings: argparse flags (``--key value``) and Hydra overrides (``key=value``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rltui.importers.values import HOLE, HOLES, is_known, to_bool, to_float, to_int, to_text

_FLAG = re.compile(r"--?[A-Za-z_]")
# what scripts call arrays that say nothing of GPUs, such as a model's shape or where to log
_NO_PLACES = ("MODEL", "WANDB", "SWANLAB", "TENSORBOARD", "LOG", "EVAL", "OPTIM", "CKPT", "DEBUG")
_OVERRIDE = re.compile(r"(\+{0,2})([A-Za-z_][\w./@-]*)=(.*)\Z", re.DOTALL)


class Settings:
    """Settings by name, each with its words; remembers which ones were asked for.

    A name that is missing takes the default that the caller gives; a name that is there with a value that is not
    known gives None. The two are never mixed up.

    Args:
        values: The words of each setting.
        is_open: Some words of the command are not known.
        is_cut: Among them is an array of settings that a file sets which was not read: a name that is missing may
            be in it, so no default is taken for it.
    """

    def __init__(self, values: Mapping[str, Sequence[object]], is_open: bool = False, is_cut: bool = False) -> None:
        self.values = dict(values)
        self.is_open = is_open
        self.is_cut = is_cut
        self.used: set[str] = set()
        self.names: dict[str, str] = {}
        """Keys of a layout whose value is that of a setting as it stands, with the setting's name."""
        self.added: frozenset[str] = frozenset()
        """Names that a plus adds to Hydra's configuration (``+key=value``); ``++key=value`` sets them either way."""

    def cut(self) -> Settings:
        """The same settings, where a file that was not read may set others."""
        other = Settings(self.values, self.is_open, is_cut=True)
        other.names, other.added = self.names, self.added
        return other

    def over(self, defaults: Mapping[str, Sequence[object]]) -> Settings:
        """The same settings over ``defaults``."""
        other = Settings({**defaults, **self.values}, self.is_open, self.is_cut)
        other.names, other.added = self.names, self.added
        return other

    def has(self, *names: str, key: str = "") -> bool:
        """Whether one of the names is set; ``key`` of a layout is noted to have its value."""
        self.used.update(names)
        name = next((name for name in names if name in self.values), "")
        self.names |= {key: name} if key and name else {}
        return bool(name)

    def words(self, *names: str) -> Sequence[object]:
        """The words of the first name that is set; none where none is."""
        self.used.update(names)
        for name in names:
            if name in self.values:
                return self.values[name]
        return ()

    def one(self, *names: str) -> object:
        """The only word of a setting, or None."""
        words = self.words(*names)
        return words[0] if len(words) == 1 else None

    def integer(self, *names: str, default: int | None = None, key: str = "") -> int | None:
        """A whole number; None where it is set and not known. ``key`` is as for ``has``."""
        return to_int(self.one(*names)) if self.has(*names, key=key) else None if self.is_cut else default

    def integers(self, *names: str, default: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        """Several whole numbers, apart or in one word such as ``8,8`` or ``[8, 8]``."""
        if not self.has(*names):
            return None if self.is_cut else default
        text = " ".join(str(word) for word in self.words(*names))
        numbers = [to_int(piece) for piece in re.split(r"[\s,\[\]()]+", text) if piece]
        known = [number for number in numbers if number is not None]
        return tuple(known) if known and len(known) == len(numbers) else None

    def number(self, *names: str, default: float | None = None) -> float | None:
        """A number; None where it is set and not known."""
        return to_float(self.one(*names)) if self.has(*names) else None if self.is_cut else default

    def text(self, *names: str, default: str = "", key: str = "") -> str:
        """A text; empty where it is set and not known. ``key`` is as for ``has``."""
        if not self.has(*names, key=key):
            return default
        value = self.one(*names)
        return to_text(value) or (_last_part(value) if key.endswith(".model") else "")

    def file(self, *names: str) -> str:
        """The name of a file, in which a folder may not be known, for ``one_beside``; empty where none is set."""
        return str(self.one(*names)) if self.has(*names) else ""

    def flag(self, *names: str, default: bool | None = False) -> bool | None:
        """A switch; bare means yes, None means that it is set and not known.

        ``--no_x`` switches x off, as argparse and the parser of transformers have it.
        """
        if not self.has(*names):
            negated = self.has(*(f"no_{name}" for name in names))
            return False if negated else None if self.is_cut else default
        words = self.words(*names)
        return to_bool(words[0]) if words else True

    def unused(self) -> list[str]:
        """Names that were never asked for."""
        return [name for name in self.values if name not in self.used]

    def unknown(self) -> list[str]:
        """Names whose value is not known."""
        return [name for name, words in self.values.items() if not all(is_known(word) for word in words)]


def _last_part(value: object) -> str:
    """The name of a model in a folder that is not known (``$MODELS/Qwen3-8B``); empty where it is not known either."""
    _, hole, behind = str(value).strip("'\"").rpartition(HOLE)
    return f".{behind}" if hole and behind.startswith("/") and behind.isprintable() else ""


def from_flags(words: Iterable[str]) -> Settings:
    """Settings of an argparse command: dashes in names count as underscores, the last of several wins."""
    values: dict[str, list[str]] = {}
    current: list[str] | None = None
    is_open = is_cut = False
    for word in words:
        if _FLAG.match(word):
            name, equals, value = word.lstrip("-").partition("=")
            current = [value] if equals else []
            values[name.replace("-", "_")] = current
        elif word == "--" or word.startswith(HOLES):
            current = None
            is_open |= word != "--"
            is_cut |= _is_part(word)
        elif word.startswith(HOLE):
            # what a hole stands for may be flags of its own, so it ends the flag before it unless it is its value
            if current is not None and not current:
                current.append(word)
            else:
                is_open = True
        elif current is not None:
            current.append(word)
    return Settings(values, is_open, is_cut)


def _is_part(word: str) -> bool:
    """Whether a word stands for an array that an unread file sets and that may count GPUs."""
    return word.startswith(HOLES) and not any(part in word.upper() for part in _NO_PLACES)


def from_overrides(words: Iterable[str]) -> Settings:
    """Settings of a Hydra command: ``key=value``, ``+key=value``, ``++key=value``; the last of several wins."""
    values: dict[str, list[str]] = {}
    added = set()
    is_open = is_cut = False
    for word in words:
        match = _OVERRIDE.match(word)
        if match:
            plus, name, value = match.groups()
            values[name] = [value]
            added |= {name} if plus == "+" else set()
        is_open |= word.startswith(HOLE)
        is_cut |= _is_part(word)
    settings = Settings(values, is_open, is_cut)
    settings.added = frozenset(added)
    return settings


def from_mapping(mapping: Mapping[str, object]) -> Settings:
    """Settings of a configuration file: nested keys become dotted ones."""
    values: dict[str, list[object]] = {}
    _flatten(mapping, "", values)
    return Settings(values)


def _flatten(mapping: Mapping[str, object], prefix: str, values: dict[str, list[object]]) -> None:
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            _flatten(value, f"{name}.", values)
        elif value is not None:
            values[name] = list(value) if isinstance(value, list) else [value]
