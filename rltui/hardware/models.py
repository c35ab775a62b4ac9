"""From a model's name or folder to its architecture."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from rltui.errors import UsageError
from rltui.hardware.architecture import Architecture
from rltui.paths import is_file, is_folder, with_home

_VARIANT = re.compile(
    r"-(instruct|base|it|chat|pt|hf|thinking|think|sft|dpo|rlvr|preview|\d{4}|fp8|bf16|fp16|awq|gptq|gguf|int[48]"
    r"|w[48]a(8|16)|nvfp4|mxfp4|bnb|4bit|8bit|dynamic|unsloth|rlzero|\d+k)(?=-|$)"
)
"""Words in names that say how a model was trained, dated or stored, not what shape it has."""

_OWN_POSITIONS: tuple[tuple[str, int], ...] = (
    (r"qwen2\.5-math-.*", 4096),
    (r"qwen2(?:\.5)?-[\d.]+b-instruct", 32768),
    (r"qwen2\.5-coder-.*", 32768),
    (r"qwen3-.*-2507(?:-fp8)?", 262144),
    (r"qwen3-coder-.*", 262144),
    (r"qwen3-[\w.]+(?:-a\d+b)?-base", 32768),
    (r"qwen2-0\.5b", 131072),
    (r"llama-3-\d+b(?:-instruct)?(?:-hf)?", 8192),
    (r"deepseek-r1-0528-qwen3-8b", 131072),
    (r"qwq-32b", 40960),
    (r"qwq-32b-preview", 32768),
    (r"phi-3\.5-mini-instruct", 131072),
    (r".*-128k(?:-instruct)?", 131072),
    (r".*-200k", 200000),
    (r".*-(?!4k)\d+k(?:-.*)?", 0),
)
"""``max_position_embeddings`` of the checkpoints' published ``config.json``, by name without organisation,
where they differ from those of their family: shapes are shared, limits are not. 0: not known."""

MXFP4_BYTES = 0.53125
"""Bytes of a weight in mxfp4: 4 bits, and 8 bits of scale for 32 of them (Open Compute Project, MX formats 1.0)."""

_STORED = (
    (re.compile(r"-(fp8|w8a8|int8|8bit)(?=-|$)"), 1.0),
    (re.compile(r"-nvfp4(?=-|$)"), 0.5625),  # 8 bits of scale for 16 weights
    (re.compile(r"-(awq|gptq-int4|int4|w4a16|4bit)(?=-|$)"), 0.53),  # 16 bits of scale and a zero for 128
)
"""Bytes of a weight of the layers, by the word in a published name that says how they are stored."""

CONFIG_BYTES_MAX = 4 * 2**20
"""A larger ``config.json`` is not one."""


@lru_cache(maxsize=1)
def models() -> tuple[Architecture, ...]:
    """Every architecture of the table."""
    data = Path(__file__).with_name("models.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[Architecture, ...])


@lru_cache(maxsize=1)
def _exact_names() -> dict[str, Architecture]:
    return {_plain(name): model for model in models() for name in (model.name, *model.aliases)}


@lru_cache(maxsize=1)
def _family_names() -> dict[str, Architecture]:
    return {_family(name): model for name, model in reversed(_exact_names().items())}


def _plain(name: str) -> str:
    """Without organisation, in lower case, with dashes."""
    plain = name.strip().rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-").replace(" ", "-")
    return plain.removeprefix("meta-").removeprefix("nvidia-")


def _family(name: str) -> str:
    plain = _plain(name)
    while (shorter := _VARIANT.sub("", plain)) != plain:
        plain = shorter
    return plain


def known_model(name: str) -> Architecture | None:
    """Return the architecture of the published model ``name``, or None.

    Organisation, case and words such as ``-Instruct``, ``-2507`` or ``-FP8`` do not change a shape. A shape of another
    size or family is never taken instead. How many positions it has is the checkpoint's own.
    """
    model = _exact_names().get(_plain(name)) or _family_names().get(_family(name))
    positions = _positions_of(_plain(name))
    return model if model is None or positions is None else replace(model, max_position=positions)


def stored_bytes(name: str) -> tuple[float, float] | None:
    """Bytes of a weight of the layers, and of routed experts, of the published checkpoint ``name``; None: 16 bits.

    gpt-oss is published with its experts in mxfp4 and all else in 16 bits, DeepSeek-V4 with all else in fp8.
    """
    plain = _plain(name)
    found = next((size for words, size in _STORED if words.search(plain)), None)
    if found is not None:
        return found, found
    if plain.startswith("deepseek-v4-") and "bf16" not in plain:
        return 1.0, MXFP4_BYTES
    return (2.0, MXFP4_BYTES) if plain.startswith("gpt-oss-") and "bf16" not in plain else None


def nearest_models(name: str) -> list[str]:
    """Three names of the table that are spelt like ``name``, best first."""
    import difflib

    names = {_plain(alias): model.name for model in models() for alias in (model.name, *model.aliases)}
    matches = difflib.get_close_matches(_family(name), list(names), n=6, cutoff=0.5)
    return list(dict.fromkeys(names[match] for match in matches))[:3]


def find_model(name: str) -> Architecture | None:
    """Return the architecture of ``name``: a local folder or ``config.json`` where there is one, else a known name.

    A path that is not on this machine is taken to be one of a cluster's, where ``/models/Qwen3-4B`` holds what it says.

    Raises:
        UsageError: The local config cannot be read or describes an architecture that is not understood.
    """
    path = with_home(name)
    looks_local = name.startswith((".", "/", "~")) or name.endswith(".json")
    if looks_local or is_file(path / "config.json"):
        if looks_local and not (is_file(path) or is_folder(path)) and (named := known_model(name)) is not None:
            return named
        return _from_file(path / "config.json" if is_folder(path) else path)
    return known_model(name)


def model_if_understood(name: str) -> Architecture | None:
    """As ``find_model``, with None also for a local config that is not there, cannot be read or is not understood."""
    try:
        return find_model(name)
    except UsageError:
        return None


def hub_model(name: str) -> Architecture:
    """Return the architecture of ``hf:ORG/NAME``: of its cached ``config.json``, the table's, or of the fetched file.

    A name of the table needs no organisation.

    Raises:
        UsageError: The file cannot be had, or describes an architecture that is not understood.
    """
    from rltui.hardware.hub import PREFIX, cached_config, fetched_config

    repo = name.removeprefix(PREFIX)
    if "/" not in repo and (named := known_model(repo)) is not None:
        return named
    cached = cached_config(repo)
    known = known_model(repo) if cached is None else None
    return known or _from_file(cached or fetched_config(repo), repo.rsplit("/", 1)[-1])


def _from_file(path: Path, name: str = "") -> Architecture:
    from rltui.hardware.checkpoint_index import settle, stored_parameters
    from rltui.hardware.hf_config import architecture_from_config

    config = read_config(path)
    model = architecture_from_config(config, name=name or path.parent.name or str(path), where=str(path))
    return settle(model, stored_parameters(path.parent, config))


def read_config(path: Path) -> dict[str, Any]:
    """What the ``config.json`` at ``path`` says of its model.

    Raises:
        UsageError: It cannot be read, or is no JSON object.
    """
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise UsageError(f"{path} is too large to be a model's config.json.", "Name the model's folder.")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{path} cannot be read: {reason}.", "Name the folder that holds config.json.") from error
    reason = ""
    try:
        # Python wrote it, and writes Infinity, which is no JSON (Nemotron-H's time_step_limit)
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        config, reason = None, f": {error}"
    if not isinstance(config, dict):
        raise UsageError(f"{path} is not a JSON object{reason}.", "Name the folder of a Hugging Face model.")
    return config


def _positions_of(plain_name: str) -> int | None:
    """Positions of a checkpoint by its name in lower case with dashes; None where its family's count."""
    return next((positions for pattern, positions in _OWN_POSITIONS if re.fullmatch(pattern, plain_name)), None)
