"""What is seen of each system: the table of docs/dialects.md, each cell made from what the system says or writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from dialect_cases import SYSTEMS
from msgspec import Struct
from test_dialects import DIALECTS, follow, metrics

from rltui.onnode.metric_names import canonical_values
from rltui.watch.node_samples import HostSnapshot, ProcessSample
from rltui.watch.owners import ROLE_NAMES, ActorSnapshot, Owners, patterns_of, role_letter, title_letter

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"

PANES: dict[str, tuple[str, ...]] = {
    "reward": ("reward",),
    "tokens/s": ("learner_tokens_per_second_step", "actor_tokens_per_second"),
    "phases": ("time/generate", "time/train"),
    "lengths": ("response_length",),
    "loss": ("loss", "grad_norm"),
    "idle": ("time/learner_idle", "time/engine_idle", "learner_idle_fraction", "engine_idle_fraction"),
}
"""Pane → metrics by our names, of which one is enough."""

FULL, PARTLY, NONE = "●", "◐", "·"


class Seen(Struct, frozen=True):
    """The metrics of a system by our names: those that a file of it tells, and those that its console says."""

    written: frozenset[str]
    said: frozenset[str]

    def cell(self, wanted: tuple[str, ...]) -> str:
        """The mark of a pane that shows one of the metrics ``wanted``."""
        if self.written.intersection(wanted):
            return FULL
        return PARTLY if self.said.intersection(wanted) else NONE


def seen_of(name: str, tmp_path: Path) -> Seen:
    """What comes out of a system's file and console, through the readers that a node uses."""
    follower = follow(tmp_path, name, SYSTEMS[name].lines)
    told: Mapping[str, float] = {}
    for values in metrics(tmp_path).values():
        told = {**told, **values}
    prefix = DIALECTS[name].metrics.prefix
    written = follower._named({one.removeprefix(prefix): 1.0 for one in SYSTEMS[name].writes})
    return Seen(frozenset(canonical_values(written)), frozenset(told))


def row_of(name: str, tmp_path: Path) -> str:
    """A row of the table."""
    seen, dialect = seen_of(name, tmp_path), DIALECTS[name]
    cells = [seen.cell(wanted) for wanted in PANES.values()]
    cells.append(FULL if SYSTEMS[name].actors or SYSTEMS[name].titles else NONE)
    cells.append(FULL if dialect.needs_ray else NONE)
    keeps, resume = bool(dialect.checkpoints.places), dialect.resume
    cells.append(FULL if keeps else NONE)
    cells.append(FULL if keeps and resume.possible else PARTLY if keeps or resume.words else NONE)
    return f"| {name} | {' | '.join(cells)} |"


def test_the_table_of_the_page_is_what_comes_out(tmp_path: Path) -> None:
    rows = []
    for name in sorted(DIALECTS):
        folder = tmp_path / name
        folder.mkdir()
        rows.append(row_of(name, folder))
    head = f"| | {' | '.join(PANES)} | roles of cards | actors | checkpoints | resume |"
    table = "\n".join([head, "|---" * (len(PANES) + 5) + "|", *rows])
    assert table in PAGE.read_text(), f"put this table into {PAGE.name}:\n{table}"


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.actors])
def test_actors_have_the_roles_that_their_system_gives_them(name: str) -> None:
    patterns, actors = patterns_of(name), SYSTEMS[name].actors
    assert {words: ROLE_NAMES.get(role_letter(words, patterns), "") for words in actors} == actors
    class_name, _, own_name = next(iter(actors)).partition(" ")
    actor = ActorSnapshot(actor_id="a", class_name=class_name, name=own_name, state="ALIVE", node="n1", pid=7)
    owner = Owners([actor], patterns).of(HostSnapshot(host="n1"), [7])
    assert ROLE_NAMES[owner.letter] == next(iter(actors.values()))


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.titles])
def test_processes_have_the_roles_that_their_titles_give_them(name: str) -> None:
    patterns, titles = patterns_of(name), SYSTEMS[name].titles
    assert {title: ROLE_NAMES.get(title_letter(title, patterns), "") for title in titles} == titles


def test_what_no_dialect_speaks_of_is_named_by_the_bundled_trainers_words() -> None:
    assert patterns_of("grpo") is patterns_of("no such system")
    assert title_letter("python learner.py") == ""
    assert title_letter("sglang::scheduler_TP0") == "E"
    assert (title_letter("VLLM::judge 0::EngineCore"), title_letter("ray::Judge.stream")) == ("J", "J")


def test_a_process_is_not_the_actor_with_its_number_on_another_node() -> None:
    actors = [
        ActorSnapshot(actor_id="a", class_name="Learner", name="", state="ALIVE", node="n1", pid=300),
        ActorSnapshot(actor_id="b", class_name="Engine", name="", state="ALIVE", node="n2", pid=200),
    ]
    child = ProcessSample(pid=300, title="VLLM::Worker_TP1", parent=200)
    owners = Owners(actors)
    assert owners.of(HostSnapshot(host="n1"), [300]).letter == "L"
    assert owners.of(HostSnapshot(host="n2", processes=(child,)), [300]).letter == "E"
    assert owners.of(HostSnapshot(host="n1.otherwise.named"), [300]).letter == "L", "Ray's name may be another"
