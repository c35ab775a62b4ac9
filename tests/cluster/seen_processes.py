"""Processes as they are seen from outside of the lab's nodes, whoever's they are."""

from pathlib import Path


def all_pids() -> list[int]:
    """Every process of this machine, the lab's nodes included."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def words(pid: int, name: str) -> list[str]:
    """``cmdline`` or ``environ`` of a process; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def runs(pid: int, word: str) -> bool:
    """Whether its command begins with something that has ``word`` in it."""
    return any(word in one for one in words(pid, "cmdline")[:4])


def is_zombie(pid: int) -> bool:
    """Whether nothing but its entry is left."""
    return not any(words(pid, "cmdline"))


def state_and_parent(pid: int) -> str:
    """The state of a process by proc(5), and its parent's command; empty where it is gone."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return ""
    return f"{state}, of {' '.join(words(int(parent), 'cmdline'))[:200]}"
