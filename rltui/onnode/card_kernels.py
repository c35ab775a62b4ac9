"""Whether the torch that a trainer would use was built for this node's cards; else it fails at its first kernel."""

import re
from typing import List, Sequence, Set, Tuple

from rltui.onnode import processes

TORCH_TIMEOUT_S = 180
"""Longest that importing torch may take, from a network file system that has not seen it for long."""

_ASK = "import torch; print(torch.__version__, torch.version.cuda, *torch.cuda.get_arch_list())"


def problems(capabilities: Sequence[str], python: str) -> List[str]:
    """Say which compute capabilities the torch of ``python`` has no kernels for; nothing where it cannot be asked.

    Args:
        capabilities: Of this node's cards, as nvidia-smi writes them: ``7.0``.
        python: The trainer's interpreter.
    """
    cards = sorted({one for one in capabilities if re.fullmatch(r"\d+\.\d+", one)})
    if not cards:
        return []
    version, cuda, built_for = _torch(python)
    if not version:
        return []
    if not built_for and cuda == "None":
        return ["torch %s was built without CUDA, and this node has GPUs: install a CUDA build" % version]
    if not built_for:  # torch of before 2026 lists nothing where torch.cuda.is_available() is false
        words = "torch %s (CUDA %s) cannot use this node's GPUs: the driver is too old for it, or CUDA_VISIBLE_DEVICES "
        return [words % (version, cuda) + "hides them; its torch.cuda.init() says which"]
    lacking = [card for card in cards if not runs_on(card, built_for)]
    return [
        "no kernels for GPUs of compute capability %s in torch %s (CUDA %s), which was built for %s: "
        "install a torch that was built for them, or choose other nodes" % (card, version, cuda, " ".join(built_for))
        for card in lacking
    ]


def runs_on(capability: str, built_for: Sequence[str]) -> bool:
    """Whether a build for ``built_for`` runs on a card: machine code within its major version, PTX on all later ones.

    NVIDIA's rules (CUDA C++ programming guide, "Binary compatibility" and "PTX compatibility"); architectures with a
    letter (``sm_90a``) run on exactly that card.
    """
    major, minor = (int(part) for part in capability.split("."))
    exact, machine, portable = _read(built_for)
    return (
        (major, minor) in exact
        or any(major == built[0] and minor >= built[1] for built in machine)
        or any((major, minor) >= built for built in portable)
    )


def _read(built_for: Sequence[str]) -> Tuple[Set[Tuple[int, int]], Set[Tuple[int, int]], Set[Tuple[int, int]]]:
    """Architectures with a letter, of machine code, and of PTX, as (major, minor)."""
    exact: Set[Tuple[int, int]] = set()
    machine: Set[Tuple[int, int]] = set()
    portable: Set[Tuple[int, int]] = set()
    for name in built_for:
        match = re.match(r"(sm|compute)_(\d+)(\d)([a-z]?)$", name)
        if match:
            kind = exact if match.group(4) else machine if match.group(1) == "sm" else portable
            kind.add((int(match.group(2)), int(match.group(3))))
    return exact, machine, portable


def _torch(python: str) -> Tuple[str, str, List[str]]:
    """Version of torch, of its CUDA, and what it was built for; an empty version where it does not say."""
    said = processes.said_by([python, "-c", _ASK], TORCH_TIMEOUT_S) or ""
    # the last line: what a start-up file of the site prints stands before it
    words = "".join(said.splitlines()[-1:]).split()
    return (words[0], words[1], words[2:]) if len(words) > 1 else ("", "", [])
