"""`rltui check run.sh`: other systems' start-up assertions, where findings stand, and what a script may leave open."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from rltui.check.catalog import FRAMEWORK_RULES
from rltui.check.script import check_script_text
from rltui.cli.main import main

sys.path.insert(0, str(Path(__file__).parents[1] / "truth"))

import reported
from mistakes import BASES, CASES, Case, Settings, codes, score, script

FIXED = [case for case in CASES if case.healthy]
VERL = """\
#!/bin/bash
# data.train_batch_size=8 is a comment
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=60 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\
    actor_rollout_ref.actor.ppo_mini_batch_size=60 \\
    actor_rollout_ref.rollout.n=5 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=1
"""


@pytest.fixture
def run_sh(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(VERL)
    return path


def checked(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, object]]:
    code = main([str(word) for word in words] + ["--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.base}")
def test_a_mistake_is_found(case: Case) -> None:
    assert case.code in codes(case.base, case.broken, "warning")


@pytest.mark.parametrize("case", FIXED, ids=lambda case: f"{case.code}-{case.base}")
def test_the_nearest_script_that_starts_is_not_accused(case: Case) -> None:
    assert not codes(case.base, case.healthy, "warning")


@pytest.mark.parametrize("base", BASES)
def test_a_published_recipe_is_not_accused(base: str) -> None:
    assert not codes(base, {}, "warning")


def test_every_assertion_has_a_mistake_and_a_source() -> None:
    assert {case.code for case in CASES} == FRAMEWORK_RULES.keys()
    assert all("https://github.com/" in rule.story for rule in FRAMEWORK_RULES.values())


def test_the_score_counts_a_miss_and_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = CASES[0].healthy
    wrong = Case("verl", "F101", sound, CASES[0].broken)  # planted the wrong way round
    monkeypatch.setattr("mistakes.BASES", {"verl": BASES["verl"]})
    monkeypatch.setattr("mistakes.CASES", (CASES[0], wrong))
    found, alarms = score().figures
    assert (found.value, found.held, found.cases) == (50.0, False, 2)
    assert (round(alarms.value), alarms.held, alarms.cases) == (33, False, 3)


def test_a_number_with_too_many_zeros_is_answered_without_trying_all_below_it() -> None:
    found = codes("skyrl", {"trainer.micro_train_batch_size_per_gpu": 10**20}, "error")
    assert found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.base}")
def test_a_fix_settles_its_finding_in_the_frameworks_own_words(case: Case) -> None:
    text, path = script(case.base, case.broken)
    (finding,) = [one for one in check_script_text(text, path).findings if one.code == case.code]
    if not finding.fix:
        return
    (word,) = finding.fix
    name, _, value = word.removeprefix("--").partition("=")
    names = {known.replace("_", "-"): known for known in {**BASES[case.base], **case.broken}}
    changed: Settings = {**case.broken, names.get(name.replace("_", "-"), name): value}
    if path.suffix == ".toml":
        changed[name] = json.loads(value)
    elif path.suffix == ".yaml":
        changed[name] = yaml.safe_load(value) if value != "None" else None
    assert case.code not in codes(case.base, changed, "warning"), word


@pytest.mark.parametrize(
    ("code", "settings", "fix"),
    [
        ("F902", {}, "sglang.context_length=8193"),
        ("F713", {}, "policy.generation.colocated.resources.gpus_per_node=7"),
        (
            "F717",
            {"policy.generation.vllm_cfg.max_model_len": 2048, "policy.max_total_sequence_length": 65536},
            "policy.generation.vllm_cfg.max_model_len=65536",
        ),
    ],
)
def test_a_bound_is_proposed_however_far_it_is(code: str, settings: Settings, fix: str) -> None:
    (case,) = [case for case in CASES if case.code == code]
    text, path = script(case.base, {**case.broken, **settings})
    assert [one.fix for one in check_script_text(text, path).findings if one.code == code] == [(fix,)]


def test_a_finding_stands_at_the_scripts_own_line_and_setting(capsys: pytest.CaptureFixture[str], run_sh: Path) -> None:
    code, report = checked(capsys, "check", run_sh)
    (file,) = report["files"]  # type: ignore[misc]
    (finding,) = [one for one in file["findings"] if one["code"] == "F101"]
    assert code == 1
    assert (finding["file"], finding["line"], finding["key"]) == (str(run_sh), 5, "data.train_batch_size")
    assert finding["fix"] == ["data.train_batch_size=64"]
    assert "60 × actor_rollout_ref.rollout.n 5 = 300 cannot be divided by 8 GPUs" in finding["message"]


def test_a_layouts_rule_speaks_in_the_scripts_words_too(capsys: pytest.CaptureFixture[str], run_sh: Path) -> None:
    run_sh.write_text(VERL.replace("size=4", "size=8"))
    (file,) = checked(capsys, "check", run_sh)[1]["files"]  # type: ignore[misc]
    (finding,) = [one for one in file["findings"] if one["code"] == "E310"]
    assert finding["key"] == "actor_rollout_ref.rollout.tensor_model_parallel_size"
    assert finding["line"] == 9
    assert finding["fix"] == ["actor_rollout_ref.rollout.tensor_model_parallel_size=4"]


@pytest.mark.parametrize(
    ("name", "text", "setting"),
    [
        ("run.sh", "accelerate launch --num_processes 2 grpo.py --use_vllm false --model_name_or_path /home/me/m\n",
         ("model_name_or_path", 1)),
        ("run.sh", "accelerate launch --num_processes 2 grpo.py --use_vllm false --model /home/me/m\n", ("model", 1)),
        ("rl.toml", "[deployment]\nnum_train_gpus = 1\n\n[trainer.model]\nname = '/home/me/m'\n",
         ("trainer.model.name", 5)),
    ],
)  # fmt: skip
def test_a_model_is_named_by_the_setting_that_has_it(name: str, text: str, setting: tuple[str, int]) -> None:
    found = check_script_text(text, Path(name)).findings
    assert [(one.key, one.line) for one in found if one.code == "X802"] == [setting]


def test_sarif_has_the_scripts_line_and_the_assertions_story(capsys: pytest.CaptureFixture[str], run_sh: Path) -> None:
    assert main(["check", str(run_sh), "--format", "sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    (result,) = [one for one in run["results"] if one["ruleId"] == "F101"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 5
    assert "validate_config" in run["tool"]["driver"]["rules"][result["ruleIndex"]]["fullDescription"]["text"]


def test_a_script_stands_wherever_a_layout_may(capsys: pytest.CaptureFixture[str], run_sh: Path) -> None:
    assert main(["draw", str(run_sh)]) == 0
    assert "Qwen2.5-7B-Instruct" in capsys.readouterr().out
    code, memory = checked(capsys, "mem", run_sh, "--gpu", "H100-SXM-80GB")
    assert code == 0
    assert memory["roles"]
    code, found = checked(capsys, "diff", run_sh, "train.prompts_per_step=64")
    assert [one["key"] for one in found["differences"]] == ["train.prompts_per_step"]  # type: ignore[attr-defined]


def test_what_a_script_leaves_open_is_said_by_set_and_gpu(capsys: pytest.CaptureFixture[str], run_sh: Path) -> None:
    unknown = {"H403"}
    for words, expected in (
        ((), unknown),
        (("--gpu", "H100-SXM-80GB"), set()),
        (("--set", "hardware.gpu=H200"), set()),
    ):
        (file,) = checked(capsys, "check", run_sh, *words)[1]["files"]  # type: ignore[misc]
        assert {one["code"] for one in file["findings"]} & unknown == expected, words


def test_a_script_is_known_by_what_is_in_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(script("nemo-rl", {"policy.train_global_batch_size": 500})[0])
    assert main(["check", str(recipe)]) == 1
    assert "F701" in capsys.readouterr().out

    class Stdin:
        buffer = io.BytesIO(VERL.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert main(["check", "-"]) == 1
    assert "F101 <stdin>:5" in capsys.readouterr().out


def test_a_launcher_in_python_is_a_script_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = "--hf-checkpoint Qwen/Qwen3-4B --actor-num-gpus-per-node 8 --colocate --num-steps-per-rollout 3"
    batches = "--rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 100 --rollout-num-gpus-per-engine 2"
    path = tmp_path / "run.py"
    path.write_text(f"import miles\nmiles.execute_train(train_args='{flags} {batches}', num_gpus_per_node=8)\n")
    assert main(["check", str(path)]) == 1
    assert "F201" in capsys.readouterr().out
    path.write_text("print('something else')\n")
    assert main(["check", str(path)]) == 2
    assert "Name the script that starts the training" in capsys.readouterr().out


def test_a_script_that_cannot_be_read_says_the_next_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["check", str(tmp_path / "none.sh")]) == 2
    assert "No such file" in capsys.readouterr().out
    other = tmp_path / "other.sh"
    other.write_text("#!/bin/sh\necho hello\n")
    assert main(["check", str(other)]) == 2
    assert "Known are open-instruct, verl" in capsys.readouterr().out
    assert main(["draw", str(other)]) == 2
    assert "no training that is known" in capsys.readouterr().err


def test_a_verl_from_before_an_assertion_is_not_asked_it(capsys: pytest.CaptureFixture[str], run_sh: Path) -> None:
    small = VERL.replace("data.train_batch_size=60 ", "data.train_batch_size=30 ")
    elder = "actor_rollout_ref.actor.ppo_micro_batch_size=8 data.train_batch_size=30 "
    for text, asked in ((small, True), (small.replace("data.train_batch_size=30 ", elder), False)):
        run_sh.write_text(text)
        main(["check", str(run_sh)])
        assert ("F102" in capsys.readouterr().out) is asked


def test_a_script_without_a_layout_is_still_asked(capsys: pytest.CaptureFixture[str], run_sh: Path) -> None:
    run_sh.write_text(
        VERL.replace("data.train_batch_size=60 ", "data.train_batch_size=30 ").replace(
            "n_gpus_per_node=8", "n_gpus_per_node=$GPUS"
        )
    )
    assert main(["check", str(run_sh)]) == 1
    out = capsys.readouterr().out
    assert "F102" in out
    assert "L002" in out
    assert "trainer.n_gpus_per_node shows only in a run (--set VARIABLE=VALUE" in out
    main(["check", str(run_sh), "--set", "GPUS=8"])
    given = capsys.readouterr().out
    assert "L002" not in given
    assert "bundled trainers" not in given  # no concern of another system's script
    assert main(["draw", str(run_sh)]) == 2
    assert "leaves its GPUs open" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VERL, ["(read as verl)"]),
        ("torchrun --nproc_per_node 8 main.py --lr 1e-6\n", ["main.py, in which no framework is recognised"]),
        ("#SBATCH --gpus-per-node=8\nsrun my_binary\n", ["a job in which no framework is recognised"]),
        ("python my_trainer.py\n", ["it starts my_trainer.py", "Known are open-instruct", "Name the file that starts"]),
    ],
)
def test_it_is_said_which_framework_was_recognised(
    capsys: pytest.CaptureFixture[str], run_sh: Path, text: str, said: list[str]
) -> None:
    run_sh.write_text(text)
    main(["check", str(run_sh)])
    out = capsys.readouterr().out
    assert [word for word in said if word not in out] == []
    assert ("(read as" in out) == (text == VERL)


def test_a_script_is_not_written_into(capsys: pytest.CaptureFixture[str], run_sh: Path) -> None:
    assert main(["check", str(run_sh), "--fix", "--write"]) == 2
    assert "which rltui does not edit" in capsys.readouterr().err
    assert run_sh.read_text() == VERL


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("src/open_r1/grpo.py", "F311"),
        ("trl/scripts/grpo.py", "F301"),
        ("../trl/trl/scripts/grpo.py", "F301"),
        ("examples/scripts/grpo_vlm.py", "F301"),
        ("grpo.py --loss_type dapo", "F301"),
    ],
)
def test_whole_groups_are_demanded_of_trls_own_trainer_alone(program: str, code: str) -> None:
    rows = "--model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1 --num_generations 8"
    text = f"torchrun --nproc_per_node=4 {program} {rows}\n"
    found = [one for one in check_script_text(text, Path("run.sh")).findings if one.code in ("F301", "F311")]
    assert [(one.code, one.severity) for one in found] == [(code, "error" if code == "F301" else "warning")]
    assert found[0].fix == ("--num_generations=4",)


def test_trls_command_is_its_own_trainer() -> None:
    text = "trl grpo --num_processes 4 --model_name_or_path m --per_device_train_batch_size 1 --num_generations 8\n"
    assert "F301" in {one.code for one in check_script_text(text, Path("run.sh")).findings}


def test_adapters_of_a_model_in_a_folder_of_another_machine_are_checked(tmp_path: Path) -> None:
    """A folder that is not here says nothing of experts, and ends no check."""
    script_text = "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model /models/own-32b --use_vllm true " + (
        "--vllm_mode colocate --train_type lora --num_generations 8 --per_device_train_batch_size 1 "
        "--gradient_accumulation_steps 1 --max_completion_length 2048\n"
    )
    report = check_script_text(script_text, tmp_path / "run.sh")
    assert report.framework == "ms-swift"
    assert report.ok


def test_a_reported_mistake_is_found_where_a_setting_is_named() -> None:
    report = next(one for one in reported.REPORTS if one.at == "THUDM/slime#1818")
    assert reported.verdict(report) == (True, [])
    mended = replace(report, settings={**report.settings, "expert-model-parallel-size": 4})
    assert reported.verdict(mended) == (False, [])
