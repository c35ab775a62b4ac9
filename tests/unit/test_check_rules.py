"""Each rule fires where it must, stays silent on the nearest sound layout, and its fix settles it."""

import json
import math
import re
from pathlib import Path

import pytest
from check_cases import BASES, CASES, SCORED, SHARED, TINY

from rltui.check.run import REGISTRY, Report, check_layout, check_text
from rltui.layout.convert import field_type
from rltui.layout.load import load_layout, load_text
from rltui.layout.presets import preset_files
from rltui.layout.schema import Layout

IDS = [case[0] for case in CASES]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "algorithms.md"


def report(base: str, overrides: list[str]) -> Report:
    return check_layout(load_text(BASES[base], f"{base}.yaml", overrides))


def codes(base: str, overrides: list[str]) -> set[str]:
    return {finding.code for finding in report(base, overrides).findings}


@pytest.mark.parametrize(("code", "base", "fires", "silent"), CASES, ids=IDS)
def test_rule_fires_and_stays_silent(code: str, base: str, fires: list[str], silent: list[str]) -> None:
    assert code in codes(base, fires)
    assert code not in codes(base, silent)


@pytest.mark.parametrize(("code", "base", "fires", "silent"), CASES, ids=IDS)
def test_findings_have_a_place_and_a_fix_that_settles_them(
    code: str, base: str, fires: list[str], silent: list[str]
) -> None:
    finding = next(finding for finding in report(base, fires).findings if finding.code == code)
    assert field_type(Layout, tuple(finding.key.split("."))) is not None, f"{finding.key} is no key of a layout"
    assert finding.message[-1] not in ".:"
    if finding.fix:
        after = report(base, [*fires, *finding.fix])
        assert code not in {finding.code for finding in after.findings}
        assert after.readable


@pytest.mark.parametrize(("node", "is_offered"), [(0, True), (512, True), (9, False)])
def test_a_job_is_to_ask_for_more_memory_unless_a_node_is_known_to_have_less(node: int, is_offered: bool) -> None:
    found = report("gpu", ["slurm.mem_gib=8", f"hardware.memory_gib_per_node={node}"]).findings
    fix = next(finding.fix for finding in found if finding.code == "M308")
    assert [word.partition("=")[0] for word in fix] == ["slurm.mem_gib"] * is_offered


@pytest.mark.parametrize("width", ["tensor_parallel", "sequence_parallel"])
def test_a_torn_group_of_learners_is_said_of_the_key_that_makes_it_wide(width: str) -> None:
    found = report("gpu", ["roles.learner.gpus=[3, 2]", f"roles.learner.{width}=2"]).findings
    assert [finding.key for finding in found if finding.code == "P118"] == [f"roles.learner.{width}"]


@pytest.mark.parametrize(
    "words",
    [
        ["roles.learner.gpus=[3]", "train.prompts_per_step=50", "train.optimizer_steps=3"],
        ["train.prompts_per_step=1", "train.samples_per_prompt=2", "train.optimizer_steps=2"],
    ],
)
def test_prompts_that_divide_over_the_ranks_divide_over_optimizer_steps_too(words: list[str]) -> None:
    fixes = [word for finding in report("gpu", words).findings for word in finding.fix if finding.severity != "note"]
    assert codes("gpu", words) & {"B202", "B212"}
    assert not codes("gpu", [*words, *fixes]) & {"B202", "B211", "B212"}


def test_a_role_that_a_fix_adds_works_as_the_learner_does() -> None:
    v100 = ["hardware.gpu=V100-SXM-32GB", "roles.learner.precision=fp16", "roles.rollout.precision=fp16"]
    (critic,) = next(
        found for found in report("ppo", [*v100, "roles.critic=null"]).findings if found.code == "B222"
    ).fix
    assert critic == "roles.critic={precision: fp16, micro_batch: 1, gradient_checkpointing: true}"
    assert not codes("ppo", [*v100, "roles.critic=null", critic]) & {"B222", "H401"}
    wanted = ["ppo.kl=loss", "ppo.kl_coefficient=0.1", "roles.critic.precision=fp16"]
    (reference,) = next(found for found in report("ppo", [*v100, *wanted]).findings if found.code == "B220").fix
    assert not codes("ppo", [*v100, *wanted, reference]) & {"B220", "H401"}
    (plain,) = next(found for found in report("ppo", wanted).findings if found.code == "B220").fix
    assert plain == "roles.reference={}"


def fix_of(code: str, base: str, words: list[str]) -> tuple[str, ...]:
    return next(finding.fix for finding in report(base, words).findings if finding.code == code)


@pytest.mark.parametrize(
    ("code", "words", "fix"),
    [
        ("P104", ["hardware.gpus_per_node=6", "roles.rollout.tensor_parallel=8"], "roles.rollout.tensor_parallel=4"),
        ("P104", ["hardware.gpus_per_node=8", "roles.rollout.tensor_parallel=16"], "roles.rollout.tensor_parallel=8"),
        (
            "P115",
            [*SHARED, "pools={all: {gpus: [3, 3]}}", "roles.rollout.tensor_parallel=4"],
            "roles.rollout.tensor_parallel=2",
        ),
        (
            "P116",  # an engine does not go over two entries of its pool
            [*SHARED, "pools={all: {gpus: [3, 3]}}", "roles.rollout.tensor_parallel=2", "roles.rollout.engines=3"],
            "roles.rollout.engines=2",
        ),
        ("E307", ["roles.rollout.precision=fp32"], "roles.rollout.precision=bf16"),
        ("E307", ["roles.rollout.precision=fp32", "hardware.gpu=V100-SXM-32GB"], "roles.rollout.precision=fp16"),
        ("E307", ["roles.rollout.precision=fp32", "roles.learner.precision=fp16"], "roles.rollout.precision=fp16"),
        ("B244", ["train.inflight_updates=true"], "train.inflight_updates=false"),
        ("P125", ["roles.reward={workers: 32}", "hardware.cpus_per_node=16"], "roles.reward.workers=24"),
        ("P125", ["roles.reward={workers: 32}"], "hardware.cpus_per_node=21"),
        ("P125", ["roles.reward={workers: 32}", "hardware.cpus_per_node=4"], "hardware.cpus_per_node=21"),
    ],
)
def test_a_fix_fits_the_machine_and_the_model(code: str, words: list[str], fix: str) -> None:
    assert fix_of(code, "gpu", words) == (fix,)
    assert code not in codes("gpu", [*words, fix])


def test_a_teacher_wider_than_a_node_gets_a_width_that_divides_its_heads() -> None:
    words = ["hardware.gpus_per_node=7", "roles.teacher.tensor_parallel=16"]
    assert fix_of("P122", "opd", words) == ("roles.teacher.tensor_parallel=4",)


def test_engines_that_may_not_run_ahead_take_no_weights_in_flight() -> None:
    words = [*SHARED, "train.async_steps=1", "train.inflight_updates=true"]
    fix = fix_of("P130", "gpu", words)
    assert fix == ("train.async_steps=0", "train.inflight_updates=false")
    assert not codes("gpu", [*words, *fix]) & {"P130", "B244"}
    assert fix_of("P130", "gpu", words[:-1]) == ("train.async_steps=0",)


def test_a_shared_engine_is_not_told_to_take_less_than_its_weights() -> None:
    greedy = [*SHARED, "roles.rollout.memory_utilization=0.8"]
    assert fix_of("E305", "gpu", greedy) == ("roles.rollout.memory_utilization=0.5",)
    assert fix_of("E305", "gpu", [*greedy, "hardware.gpu=V100-SXM-32GB"]) == ()
    assert "E305" not in codes("gpu", [*greedy, "roles.learner.offload=all"]), "the learner has left the card"


def test_an_imported_engine_that_is_short_by_less_than_the_estimate_may_be_off_is_warned_of() -> None:
    words = ["lengths.response=400000"]
    assert "M304" in codes("gpu", words)
    unsure = [*words, 'unsure=["data.train"]']
    found = {finding.code: finding.severity for finding in report("gpu", unsure).findings}
    assert found["M302"] == "warning"
    assert "M304" not in found
    assert "M304" in codes("gpu", ["lengths.response=500000", *unsure[1:]])


def test_an_engine_is_not_made_wider_than_any_node_has_room_for() -> None:
    long = ["roles.learner.model=Qwen/Qwen3-32B", "lengths.response=400000"]
    assert fix_of("M304", "gpu", [*long, "roles.learner.gpus=[2, 2]"]) == ()
    roomy = ["roles.learner.gpus=[4]", "roles.rollout.engines=2", "roles.rollout.tensor_parallel=2"]
    assert "roles.rollout.tensor_parallel=4" in fix_of("M304", "gpu", [*long, *roomy])


@pytest.mark.parametrize("base", BASES)
def test_sound_layouts_have_no_errors_and_no_warnings(base: str) -> None:
    assert [finding for finding in report(base, []).findings if finding.severity != "note"] == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"architectures": ["LlamaForSequenceClassification"]}, "has 2 outputs, and one is a score"),
        ({"id2label": {"0": "A", "1": "B", "2": "C"}}, "has 3 outputs"),
        ({"id2label": {"0": "score"}, "max_position_embeddings": 4096}, "has positions for 4096"),
        ({"num_labels": 1, "text_config": {"max_position_embeddings": 8192}}, ""),
        ({"num_labels": 1, "text_config": None, "architectures": "X", "max_position_embeddings": "4096"}, ""),
        ({"id2label": 5, "architectures": [None]}, "has 2 outputs"),
    ],
)
def test_a_reward_models_folder_is_read(tmp_path: Path, said: dict[str, object], words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(said))
    found = [each.message for each in report("gpu", [*SCORED, f"roles.reward_model.model={tmp_path}"]).findings]
    named = [message for message in found if f"{tmp_path} has" in message]
    assert ([words in message for message in named] == [True]) if words else not named


def test_every_rule_has_a_case_and_a_story() -> None:
    assert set(REGISTRY) == {case[0] for case in CASES}
    assert len(REGISTRY) >= 60
    assert all(rule.title.endswith((".", ".)")) for rule in REGISTRY.values())


@pytest.mark.parametrize("path", [path for _, path in preset_files()], ids=[name for name, _ in preset_files()])
def test_presets_have_no_errors_and_no_warnings(path: object) -> None:
    found = check_layout(load_layout(str(path))).findings
    assert [f"{each.code} {each.message}" for each in found if each.severity != "note"] == []


def test_findings_carry_the_line() -> None:
    text = TINY.replace("steps: 2000", "steps: 0")
    finding = next(f for f in check_text(text, "my.yaml").findings if f.code == "B201")
    assert finding.line == next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith("train:"))


def test_unreadable_layouts_are_findings_too() -> None:
    report_ = check_text("layout: 2\n", "my.yaml")
    assert not report_.ok
    assert not report_.readable
    assert {finding.code for finding in report_.findings} == {"L001"}


def test_arithmetic_names_the_padding() -> None:
    found = report("tiny", ["train.prompts_per_step=3", "train.samples_per_prompt=3"]).arithmetic
    assert found is not None
    assert (found.samples_per_rank, found.padding_samples_per_step) == (5, 1)
    assert report("tiny", []).arithmetic_lines[2] == "2000 steps = 512000 samples, 20 checkpoints"


def test_each_optimizer_step_fills_up_its_ranks_and_cuts_its_own_micro_batches() -> None:
    words = ["roles.learner.gpus=[3]", "train.prompts_per_step=50", "train.optimizer_steps=3"]
    found = report("gpu", [*words, "roles.learner.micro_batch=4"]).arithmetic
    assert found is not None
    assert found.samples_per_rank == 45 + 45 + 45  # of 133, 133 and 134 samples over 3 ranks
    assert found.padding_samples_per_step == 2 + 2 + 1
    assert found.micro_batches_per_rank == 12 + 12 + 12
    even = report("gpu", ["train.optimizer_steps=4", "roles.learner.micro_batch=48"]).arithmetic
    assert even is not None
    assert (even.samples_per_rank, even.padding_samples_per_step, even.micro_batches_per_rank) == (64, 0, 4)


def test_packed_rows_are_no_count_of_micro_batches() -> None:
    lines = report("gpu", ["lengths.pack=8192", "roles.learner.micro_batch=2"]).arithmetic_lines
    assert lines[1] == "64 samples a rank in rows of at most 8192 tokens, 2 at once, 0 rows of padding"
    assert report("gpu", []).arithmetic_lines[1] == "64 samples a rank in 64 micro-batches, 0 rows of padding"


def test_arithmetic_is_resolved_to_integers() -> None:
    words = ["train.optimizer_steps=4", "data.eval=org/test", "data.eval_every=30", "slurm.time=1-12:00"]
    found = report("gpu", words).arithmetic
    assert found is not None
    assert (found.learners, found.samples_per_rank, found.engines) == (4, 64, 4)
    assert (found.optimizer_steps_per_rollout, found.samples_per_optimizer_step) == (4, 64)
    assert (found.checkpoints, found.evals) == (4, 5)  # before step 1, after 30, 60, 90 and 100
    assert found.gpu_hours_asked == 8 * 36
    endless = report("gpu", ["slurm.time=0:00"]).arithmetic
    assert endless is not None
    assert endless.gpu_hours_asked is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("24:00", 1440),
        ("24:00:00", 86400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("2-00:00:01", 172801),
        ("0", math.inf),
    ],
)
def test_slurm_times_are_read_as_slurm_reads_them(text: str, seconds: float) -> None:
    from rltui.layout.time_limit import time_limit_s

    assert time_limit_s(text) == seconds


RECIPES = re.findall(r"^\| ([^|]+) \| (`(?:advantage|ratio|clip_low)[^|]+) \|$", DOCS.read_text(), re.MULTILINE)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe[0])
def test_a_recipe_of_the_docs_contradicts_nothing(recipe: tuple[str, str]) -> None:
    words = [f"grpo.{key}={value}" for key, value in re.findall(r"`(\w+): ([\w.-]+)`", recipe[1])]
    if any("kl=" in word for word in words):
        words += ["grpo.kl_coefficient=0.01", "roles.reference={}"]
    assert not {code for code in codes("gpu", [*words, "train.optimizer_steps=2"]) if code.startswith("B2")}
    assert len(RECIPES) > 7
