"""Remedies: typed changes of real layout keys, filled-in commands that no log can turn into others, and stories."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from rltui.diagnose import pages, report
from rltui.diagnose.cause import Cause
from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.fitting import current, fitted
from rltui.diagnose.index import CAUSES, RULES
from rltui.diagnose.sources import text_source
from rltui.diagnose.verdicts import Change, Diagnosis, Remedy
from rltui.diagnose.wording import STATES, Reading, compiled
from rltui.layout.schema import Layout

NUMBERS = {
    "node": "n7", "gpu": "3", "held": "3664", "asked": "4096", "free_gib": "70.0", "total_gib": "79.1", "heads": "52",
    "asked_share": "0.9", "tp": "8", "derived": "2048", "prompt": "100", "batch": "7", "micro": "2", "steps": "2",
    "world": "1",
}  # fmt: skip
VARIANTS = (
    {},
    NUMBERS,
    {"allocator": "yes"},
    {"bucket": "yes", "fragmented": "yes"},
    {"threads": "yes"},
    {"news": "yes"},
)


def remedies(cause: Cause) -> list[Remedy]:
    """Return all remedies of ``cause``, for evidence with and without numbers."""
    return [remedy for fields in VARIANTS for remedy in cause.remedies_for(fields)]


def layout_values() -> dict[str, object]:
    """Return a layout as loaded, nested."""
    return msgspec.to_builtins(
        msgspec.convert(
            {
                "layout": 1,
                "name": "x",
                "algorithm": "grpo",
                "hardware": {"nodes": 1, "gpus_per_node": 4},
                "roles": {"learner": {"model": "m", "gpus": [2], "micro_batch": 8}, "rollout": {"engines": 2}},
                "train": {"steps": 1, "prompts_per_step": 2, "samples_per_prompt": 2, "learning_rate": 1e-6},
                "lengths": {"prompt": 16, "response": 1000},
                "data": {"train": "builtin/sort-digits"},
            },
            Layout,
        )
    )


@pytest.mark.parametrize("cause", CAUSES.values(), ids=list(CAUSES))
def test_a_cause_is_told_completely(cause: Cause) -> None:
    assert cause.title[0].isupper() or cause.title.startswith(("max_", "/dev"))
    assert not cause.title.endswith(".")
    assert cause.tell
    assert cause.sources
    assert remedies(cause)
    page = "\n".join(report.story(cause.id))
    assert all(part in page for part in ("How to tell", "What helps", "What does not", "Sources"))


@pytest.mark.parametrize("cause", CAUSES.values(), ids=list(CAUSES))
def test_changes_are_of_keys_that_layouts_have(cause: Cause) -> None:
    values = layout_values()
    for remedy in remedies(cause):
        for change in remedy.changes:
            assert current(values, change.key) is not None, change.key
            new = change.applied_to(current(values, change.key))
            assert new is None or isinstance(new, type(current(values, change.key))), change


def test_causes_refer_to_each_other_by_their_ids() -> None:
    assert all(cause.explains <= set(CAUSES) for cause in CAUSES.values())
    mutual = [one.id for one in CAUSES.values() for other in one.explains if one.id in CAUSES[other].explains]
    assert not mutual  # each would be a consequence, and nothing a cause
    states = {rule.cause for rule in RULES} - set(CAUSES)
    assert states <= STATES


def test_what_changes_the_experiment_needs_consent() -> None:
    touchy = ("lengths.", "train.", "roles.learner.precision", "roles.learner.gpus", "hardware.")
    for cause in CAUSES.values():
        for remedy in remedies(cause):
            if any(change.key.startswith(touchy) for change in remedy.changes):
                assert remedy.safe == "confirm", (cause.id, remedy.id)


def test_no_remedy_is_a_wrong_lever_of_the_guides() -> None:
    words = " ".join(" ".join((r.summary, *r.commands)) for cause in CAUSES.values() for r in remedies(cause)).lower()
    for wrong in ("pkill", "ignore_duplicate_gpu", "ray stop", "scancel -u", "strict=false", "kill -9"):
        assert wrong not in words


@pytest.mark.parametrize("cause", CAUSES.values(), ids=list(CAUSES))
def test_patterns_compile_and_commands_are_shell_words(cause: Cause) -> None:
    for wording in cause.wordings:
        assert wording.anchor == wording.anchor.lower()
        compiled(wording.pattern)
        compiled(wording.unless)
    for remedy in remedies(cause):
        assert not re.search(r"{\w+}", " ".join((remedy.summary, *remedy.commands)))
        for command in remedy.commands:
            shlex.split(command)


@pytest.mark.parametrize("node", ["n7; rm -rf ~", "$(reboot)", "-x", "a b", "`id`", "n\n7"])
def test_a_hostile_node_name_never_reaches_a_command(node: str) -> None:
    for cause in CAUSES.values():
        for remedy in cause.remedies_for({"node": node}):
            assert node not in " ".join(remedy.commands)
            assert all(change.value != node for change in remedy.changes)


def test_the_failed_node_is_offered_for_exclusion() -> None:
    """Not the one whose daemon ends the job: that one is left."""
    log = "slurmstepd: error: *** JOB 38 ON nid010868 CANCELLED AT 2026-08-19T16:30:21 DUE TO NODE FAILURE ***"
    words = str(diagnose([text_source("log", log)])[0].remedies)
    assert "nid010868" not in words
    diagnosis = diagnose([text_source("log", f"{log}\nsrun: error: Node failure on nid010869")])[0]
    assert "nid010869" in diagnosis.summary
    assert any("--exclude=nid010869" in command for command in diagnosis.remedies[0].commands)


@pytest.mark.parametrize(
    ("log", "remedy", "words"),
    [
        ("The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache "
         "(23648)",
         "fit-context", "23552"),
        ("Free memory on device (70.0/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB)",
         "fit-memory-utilization", "0.86"),
        ("Free memory on device (0.49/79.32 GiB) on startup is less than desired GPU memory utilization (0.6, 47.6 "
         "GiB)",
         "find-the-owner", "orphan"),
        ("Total number of attention heads (28) must be divisible by tensor parallel size "
         "(8).", "divide-heads", "to 4,"),  # 7 would leave one of eight GPUs to nobody
        ("AssertionError: Check batch related parameters. train_batch_size is not equal to 128 != 2 * 8 * 1",
         "legal-batch", "launcher's world size"),
        ("AssertionError: Check batch related parameters. train_batch_size is not equal to 128 != 2 * 9 * 7",
         "legal-batch", "Take 126"),
    ],
)  # fmt: skip
def test_numbers_of_the_evidence_decide(log: str, remedy: str, words: str) -> None:
    first = diagnose([text_source("log", log)])[0].remedies[0]
    assert first.id == remedy
    assert words in first.summary


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (Change("k", "times", 0.5, least=1), 8, 4),
        (Change("k", "times", 0.5, least=1), 1, None),
        (Change("k", "times", 0.5, least=1), 0, None),
        (Change("k", "times", 0.5), 1e-6, 5e-7),
        (Change("k", "plus", -0.1, least=0.3), 0.9, 0.8),
        (Change("k", "plus", -0.1, least=0.3), 0.3, None),
        (Change("k", "plus", -0.1, least=0.3), 0.2, None),
        (Change("k", "plus", 0.1, most=0.95), 0.97, None),
        (Change("k", "plus", 0.1, most=0.95), 0.9, 0.95),
        (Change("k", "set", True), False, True),
        (Change("k", "set", True), True, None),
        (Change("k", "set", "offline"), "online", "offline"),
        (Change("k", "plus", "n7"), ["n1"], ["n1", "n7"]),
        (Change("k", "plus", "n7"), ["n7"], None),
    ],
)
def test_a_change_becomes_a_value(change: Change, before: object, after: object) -> None:
    assert change.applied_to(before) == after


def test_remedies_are_fitted_to_the_layout_that_ran() -> None:
    learner = Remedy(
        id="a",
        summary="",
        changes=(Change("roles.learner.micro_batch", "times", 0.5), Change("slurm.exclude", "plus", "n7")),
    )
    done = Remedy(id="b", summary="", changes=(Change("roles.learner.zero_stage", "set", 2),))
    words = Remedy(id="c", summary="")
    diagnosis = Diagnosis(id="x", confidence=1.0, summary="", remedies=(learner, done, words))
    found = fitted(diagnosis, layout_values()).remedies
    assert [remedy.id for remedy in found] == ["a", "c"]
    assert [(change.key, change.value) for change in found[0].changes] == [
        ("roles.learner.micro_batch", 4),
        ("slurm.exclude", "[n7]"),
    ]


def test_a_small_piece_of_memory_is_not_nothing() -> None:
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 7 has a total capacity of 79.1 "
    summary = diagnose([text_source("log", f"{log}GiB of which 8.00 MiB is free.")])[0].summary
    assert "20 MiB asked for, 8 MiB free of 79.1 GiB" in summary


def test_a_path_in_the_evidence_can_be_copied() -> None:
    path = f"/home/me/{'very/' * 20}long.json"
    lines = report.as_text(diagnose([text_source("a.log", f"OSError: [Errno 122] Disk quota exceeded: '{path}'")]))
    assert any(path in line for line in lines)


def test_json_has_the_promised_form() -> None:
    log = "[rank3]: ValueError: No available memory for the cache blocks."
    document = report.as_json(diagnose([text_source("a.log", log)]))
    assert document["schema"] == 1
    (diagnosis,) = document["diagnoses"]
    assert set(diagnosis) == {"id", "confidence", "secondary", "summary", "evidence", "remedies"}
    assert diagnosis["evidence"][0] == {"file": "a.log", "line": 1, "text": log.partition(": ")[2], "rank": "3"}
    remedy = diagnosis["remedies"][0]
    assert set(remedy) == {"id", "summary", "set", "commands", "safe"}
    assert remedy["set"] == {"roles.rollout.memory_utilization": "+0.1"}
    assert remedy["safe"] in ("auto", "confirm", "never")


def test_people_read_the_cause_first_and_the_rest_last() -> None:
    log = "ValueError: No available memory for the cache blocks.\nRuntimeError: Engine core initialization failed."
    lines = list(report.as_text(diagnose([text_source("a.log", log)])))
    assert lines[0].startswith("✗ Nothing was left")
    assert "  a.log:1" in lines
    assert lines[-3].startswith("Also seen") or lines[-2].startswith("Also seen")
    assert "engine_core_died" in lines[-2] or "engine_core_died" in lines[-1]


def test_what_a_run_suffered_from_is_no_consequence_of_what_ended_it() -> None:
    def seen(cause: str, *, secondary: bool) -> Diagnosis:
        return Diagnosis(id=cause, confidence=1.0, summary=f"{cause}.", secondary=secondary)

    found = [seen("slurm_node_fail", secondary=False), seen("ray_actor_died", secondary=True)]
    lines = list(report.as_text([*found, seen("reward_flat", secondary=True)]))
    consequences = ["Also seen, as a consequence:", "  · ray_actor_died: ray_actor_died."]
    assert lines[-5:] == [*consequences, "", "Seen while it ran:", "  · reward_flat: reward_flat."]


def test_a_reading_is_a_plain_value() -> None:
    assert Reading(0.5) == Reading(0.5, "", {})


def test_the_page_of_diagnoses_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "diagnoses.md"
    assert page.read_text() == "".join(f"{line}\n" for line in pages.markdown()), pages.__doc__
    assert all(f"`{cause}`" in page.read_text() for cause in CAUSES)
