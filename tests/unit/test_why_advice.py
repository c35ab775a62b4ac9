"""Changes of a layout that are offered to a slow run: with numbers from and to, and only where the checks agree."""

from __future__ import annotations

import pytest

from rltui.check.run import check_text
from rltui.diagnose.diagnose import examine
from rltui.diagnose.recent import Step
from rltui.diagnose.run_words import RunPicture, words_of
from rltui.diagnose.sources import text_source
from rltui.diagnose.verdicts import Diagnosis
from rltui.layout.load import LoadedLayout, dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.service.why_advice import Phases, advised, without_tuning
from rltui.watch.snapshots import StageSnapshot

LEARNER_BOUND = {
    "time/total": 60.0, "time/generate": 14.0, "time/train": 40.0, "time/engine_idle": 44.0, "time/learner_idle": 18.0,
}  # fmt: skip
ROLLOUT_BOUND = {
    "time/total": 60.0, "time/generate": 45.0, "time/train": 13.0, "time/engine_idle": 15.0, "time/learner_idle": 46.0,
}  # fmt: skip


def found(values: dict[str, float], loaded: LoadedLayout, log: str = "", every_s: float = 60.0) -> list[Diagnosis]:
    """What ``why`` says of a live run of this layout with these numbers in each of its steps."""
    steps = tuple(Step(every_s * number, values) for number in range(12))
    picture = RunPicture(now=steps[-1].at, stage=StageSnapshot(stage="training"), steps=steps)
    said = examine([text_source("out.log", log), text_source("m", "\n".join(words_of(picture)["metrics.jsonl"]))])
    return list(advised(without_tuning(said.diagnoses), picture.recent, loaded))


def layout(name: str, *overrides: str) -> LoadedLayout:
    return load_layout(resolve(name), overrides)


def changes(diagnosis: Diagnosis) -> list[dict[str, object]]:
    """Those of the remedies that change the layout, in their order."""
    return [{one.key: one.value for one in remedy.changes} for remedy in diagnosis.remedies if remedy.changes]


@pytest.mark.parametrize(
    ("values", "name", "overrides", "first"),
    [
        (
            LEARNER_BOUND, "open-instruct/grpo-7b-2x4-uneven", (),
            {"roles.learner.gpus": "[2, 3]", "roles.rollout.engines": 3},
        ),
        (
            ROLLOUT_BOUND, "open-instruct-32b/math-8x4", (),
            {"roles.learner.gpus": "[4, 4]", "roles.rollout.engines": 12},
        ),
        (
            ROLLOUT_BOUND | {"time/train": 5.0}, "local/grpo-tiny", (),
            {"roles.learner.gpus": "[1]", "roles.rollout.engines": 2},
        ),
        (LEARNER_BOUND | {"time/reward": 20.0, "time/train": 15.0}, "local/grpo-tiny", (), {"train.async_steps": 1}),
    ],
)  # fmt: skip
def test_the_change_with_the_largest_gain_comes_first(
    values: dict[str, float], name: str, overrides: tuple[str, ...], first: dict[str, object]
) -> None:
    loaded = layout(name, *overrides)
    [diagnosis] = found(values, loaded)
    assert changes(diagnosis)[0] == first
    summary = diagnosis.remedies[0].summary
    assert "→" in summary
    assert "instead of 60 s" in summary
    assert diagnosis.remedies[0].safe == "confirm"
    words = [f"{key}={value}" for key, value in first.items()]
    assert check_text(dump_layout(loaded.layout), "x", words).ok


def test_what_the_checks_refuse_is_not_offered() -> None:
    """Of two GPUs of a node, none can move; and what shares its cards cannot run ahead."""
    for name in ("v100-code/grpo-3b-2xv100", "verl-ppo/ppo-1x4-standard"):
        loaded = layout(name)
        [diagnosis] = found(LEARNER_BOUND, loaded)
        keys = {key for each in changes(diagnosis) for key in each}
        assert "roles.rollout.engines" not in keys
        assert "train.async_steps" not in keys or not loaded.layout.roles.rollout.pool
        for each in changes(diagnosis):
            assert check_text(dump_layout(loaded.layout), "x", [f"{key}={value}" for key, value in each.items()]).ok


def test_engines_are_added_to_a_judge_that_the_step_waits_for() -> None:
    values = {"time/total": 10.0, "time/generate": 1.0, "time/reward": 7.0, "time/train": 1.5, "time/engine_idle": 9.0}
    words = ["hardware.gpus_per_node=4", "train.async_steps=4"]
    [free] = found(values, layout("local/grpo-with-judge-tiny", *words))
    assert {"roles.judge.engines": 2} in changes(free)
    [full] = found(values, layout("local/grpo-with-judge-tiny", *words, "roles.rollout.engines=2"))
    assert {"roles.judge.engines": 2, "roles.rollout.engines": 1} in changes(full)


def test_reward_workers_are_added_as_far_as_there_are_cores() -> None:
    values = {"time/total": 10.0, "time/generate": 1.0, "time/reward": 7.0, "time/train": 1.5, "time/engine_idle": 9.0}
    [few] = found(values, layout("v100-code/grpo-3b-2xv100"), every_s=10.0)
    assert changes(few) == [{"roles.reward.workers": 32}]
    assert "Reward workers 8 → 32: a step takes about 4.75 instead of 10 s (−52 %)" in few.remedies[0].summary
    [narrow] = found(values, layout("v100-code/grpo-3b-2xv100", "hardware.cpus_per_node=20"), every_s=10.0)
    assert changes(narrow) == [{"roles.reward.workers": 16}]
    [none] = found(values, layout("v100-code/grpo-3b-2xv100", "hardware.cpus_per_node=12"), every_s=10.0)
    assert changes(none) == []


def test_checkpoints_become_as_rare_as_it_takes() -> None:
    values = {"time/total": 60.0, "time/generate": 30.0, "time/train": 28.0, "time/saving": 30.0}
    [diagnosis] = found(values, layout("local/grpo-tiny", "checkpoint.every=2"), every_s=90.0)
    [change] = changes(diagnosis)
    every = int(str(change["checkpoint.every"]))
    share = 30 * 2 / every / (60 + 30 * 2 / every)
    assert 0.04 < share <= 0.05


def test_an_alarm_silences_advice_on_speed() -> None:
    loaded = layout("local/grpo-tiny")
    [diagnosis] = found(LEARNER_BOUND, loaded)
    assert diagnosis.id == "learner_bound"
    alarmed = found(LEARNER_BOUND, loaded, "OSError: [Errno 28] No space left on device\n")
    assert [one.id for one in alarmed] == ["disk_full"]
    aside = found(LEARNER_BOUND, loaded, "wandb: ERROR api_key not configured (no-tty). call wandb.login\n")
    assert "learner_bound" in [one.id for one in aside]


def test_gains_are_those_of_the_phases() -> None:
    turns = Phases(generate_s=40.0, train_s=15.0, others_s=5.0, is_ahead=False)
    assert turns.gain(generate=0.5) == pytest.approx(20 / 60)
    assert turns.gain(ahead=True) == pytest.approx(20 / 60)
    assert turns.gain(saved_s=99.0) == pytest.approx(5 / 60)
    ahead = Phases(generate_s=40.0, train_s=15.0, others_s=5.0, is_ahead=True)
    assert ahead.gain(generate=0.5) == pytest.approx(0.5)
    assert ahead.gain(generate=0.5, train=2.0) == pytest.approx(5 / 40)
    assert ahead.gain(train=0.5) == 0.0


KV_BOUND = ROLLOUT_BOUND | {"kv_cache_usage": 1.0, "engine_running": 40.0, "engine_waiting": 200.0}


def test_more_cache_has_the_gain_of_more_sequences_at_once() -> None:
    """A cache of half the bytes holds twice as many, and a step of decoding takes less than twice as long with them."""
    loaded = layout("open-instruct/grpo-7b-2x4-uneven")
    [diagnosis] = [one for one in found(KV_BOUND, loaded) if one.id == "kv_bound"]
    first = diagnosis.remedies[0]
    assert changes(diagnosis)[0] == {"roles.rollout.kv_cache_dtype": "fp8"}
    less_s = float(first.summary.split("takes about ")[1].split()[0])
    assert 30.0 < less_s < 54.0, "no more than half is saved"
    waits_little = found(KV_BOUND | {"engine_waiting": 21.0}, loaded)
    [some] = [one for one in waits_little if one.id == "kv_bound"]
    assert float(some.remedies[0].summary.split("takes about ")[1].split()[0]) > less_s, "only what waits can run"


def test_more_cache_has_no_number_where_nothing_is_known_of_the_engine() -> None:
    [diagnosis] = [one for one in found(KV_BOUND, layout("local/grpo-tiny")) if one.id == "kv_bound"]
    assert "instead of" not in "".join(remedy.summary for remedy in diagnosis.remedies if remedy.changes)


def test_more_slots_have_the_gain_of_more_sequences_at_once() -> None:
    loaded = layout("open-instruct/grpo-7b-2x4-uneven", "roles.rollout.max_concurrency=8")
    [diagnosis] = found(ROLLOUT_BOUND | {"engine_occupancy": 0.97}, loaded)
    [slots] = [one for one in diagnosis.remedies if one.id == "more-concurrency"]
    assert "max_concurrency 8 → 16, as 97 %" in slots.summary
    assert 30.0 < float(slots.summary.split("takes about ")[1].split()[0]) < 54.0
