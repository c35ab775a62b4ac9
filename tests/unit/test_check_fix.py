"""Fixes written into files, and reports for other programs."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from check_cases import BASES, CASES, GPU

from rltui.check.fix import apply, collect
from rltui.check.run import check_layout, check_text
from rltui.cli.main import main
from rltui.errors import UsageError
from rltui.layout.load import load_text

COMMENTED = """\
# the first line
layout: 1  # version
name: gpu
algorithm: grpo
hardware: {nodes: 2, gpus_per_node: 4, gpu: H100-SXM-80GB}  # two nodes
roles:
  learner:
    # of the learner
    model: Qwen/Qwen3-8B
    gpus: [2, 2]
    zero_stage: 3  # sharded
  rollout: {engines: 9, memory_utilization: 0.5}
train: {steps: 100, prompts_per_step: 31, samples_per_prompt: 3, learning_rate: 1.0e-6}
lengths: {prompt: 1024, response: 4096}
data: {train: org/math, reward: math}
# the last line
"""


def test_values_change_and_comments_stay() -> None:
    words = ["roles.rollout.engines=4", "roles.learner.zero_stage=2", "train.learning_rate=1e-7", "slurm.time=01:00:00"]
    edited = apply(COMMENTED, "my.yaml", [*words, "roles.learner.offload=none", "roles.reference={}"])
    before, after = COMMENTED.splitlines(), edited.splitlines()
    assert [line for line in before if "#" in line and "zero" not in line] == [
        line for line in after if "#" in line and "zero" not in line
    ]
    assert "    zero_stage: 2  # sharded" in after
    assert "learning_rate: 1.0e-07}" in edited
    assert "slurm: {time: '01:00:00'}" in after
    assert load_text(edited, "x").layout == load_text(COMMENTED, "x", [*words, "roles.reference={}"]).layout


EMPTIED = {"P109", "B221", "B224"}
"""Fixes that take away a list or a section, which a dump writes over several lines."""


@pytest.mark.parametrize(("code", "base", "fires"), [case[:3] for case in CASES], ids=[case[0] for case in CASES])
def test_every_fix_can_be_written(code: str, base: str, fires: list[str]) -> None:
    from rltui.layout.load import dump_layout

    text = dump_layout(load_text(BASES[base], base, fires).layout)
    finding = next((f for f in check_text(text, "x.yaml").findings if f.code == code), None)
    if finding is None or not finding.fix:
        return  # B225 is about sections that a dump always has
    if code in EMPTIED:
        with pytest.raises(UsageError, match="cannot be written safely"):
            apply(text, "x.yaml", finding.fix)
        return
    edited = apply(text, "x.yaml", finding.fix)
    assert code not in {finding.code for finding in check_text(edited, "x.yaml").findings}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (COMMENTED.replace("gpus: [2, 2]", "gpus:\n      - 2  # first\n      - 2"), "roles.learner.gpus=[4]"),
        (COMMENTED.replace("gpus: [2, 2]", "gpus: [2,  # first\n      2]"), "roles.learner.gpus=[4]"),
        (COMMENTED.replace("name: gpu", "name: gpu\nsummary: >\n  long\n  text"), "summary=short"),
    ],
)
def test_what_is_ambiguous_is_refused_and_left_alone(text: str, word: str) -> None:
    with pytest.raises(UsageError, match="cannot be written safely"):
        apply(text, "my.yaml", [word])


@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        ("- n1   # flaky\n    - n1\n    - n2", "[n1, n2]", "- n1   # flaky\n    - n2"),
        ("- n1\n    - n2", "[n2, n3]", "- n2\n    - n3"),
        ("- n1", "[n1, n2, n3]", "- n1\n    - n2\n    - n3"),
    ],
)
def test_lists_with_an_item_a_line_are_written_so(before: str, word: str, after: str) -> None:
    text = f"{GPU}slurm:\n  qos: long  # a day\n  exclude:\n    {before}\n"
    edited = apply(text, "x.yaml", [f"slurm.exclude={word}"])
    assert edited == text.replace(before, after)


@pytest.mark.parametrize("items", ["- n1 # why\n    - n2", "- n1\n    # why\n    - n2", "-\n      n1\n    - n2"])
def test_lists_that_would_lose_a_comment_are_refused(items: str) -> None:
    with pytest.raises(UsageError, match="cannot be written safely"):
        apply(GPU + f"slurm:\n  exclude:\n    {items}\n", "x.yaml", ["slurm.exclude=[n2]"])


def test_fixes_that_contradict_are_left_for_the_next_round() -> None:
    found = collect(check_layout(load_text(COMMENTED, "x.yaml")).findings)
    assert "roles.rollout.engines=4" in found.words
    assert len({word.partition("=")[0] for word in found.words}) == len(found.words)


def test_fix_shows_and_write_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(COMMENTED)
    assert main(["check", "--fix", str(path)]) == 1
    assert "roles.rollout.engines=4" in capsys.readouterr().err
    assert path.read_text() == COMMENTED
    for _ in range(3):
        main(["check", "--fix", "--write", str(path)])
    capsys.readouterr()
    assert main(["check", str(path), "--strict"]) == 0
    assert path.read_text().startswith("# the first line\n")
    assert path.read_text().endswith("# the last line\n")


def test_a_full_disk_takes_nothing_of_a_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(COMMENTED)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        code = main(["check", "--fix", "--write", str(path)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 2
    assert "cannot be written: File too large" in capsys.readouterr().err
    assert path.read_text() == COMMENTED
    assert [one.name for one in tmp_path.iterdir()] == ["my.yaml"]


@pytest.mark.parametrize(
    "words", [["--write", "x.yaml"], ["--fix", "--write", "-"], ["--fix", "--write", "x.yaml", "a=b"]]
)
def test_write_needs_files_of_its_own(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == 2
    assert "--write needs --fix" in capsys.readouterr().err


def test_sarif_has_rules_results_and_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, broken = tmp_path / "my own 50 %.yaml", tmp_path / "broken.yaml"
    path.write_text(COMMENTED)
    broken.write_text("layout: 1\n")
    assert main(["check", str(path), str(broken), "--format", "sarif"]) == 2
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert {"P101", "B202", "L001"} <= {result["ruleId"] for result in run["results"]}
    engines = next(result for result in run["results"] if result["ruleId"] == "P101")
    assert engines["level"] == "error"
    place = engines["locations"][0]["physicalLocation"]
    assert place["region"]["startLine"] == 12
    assert place["artifactLocation"]["uri"] == f"{tmp_path}/my%20own%2050%20%25.yaml"


@pytest.mark.parametrize(("strict", "failing"), [([], "P101"), (["--strict"], "B202")])
def test_junit_has_a_case_a_file_that_fails_by_its_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strict: list[str], failing: str
) -> None:
    path, broken = tmp_path / "a<b\x01.yaml", tmp_path / "broken.yaml"
    path.write_text(COMMENTED)
    broken.write_text("layout: 1\n")
    assert main(["check", str(path), str(broken), "local/grpo-tiny", "--format", "junit", *strict]) == 2
    (suite,) = ElementTree.fromstring(capsys.readouterr().out)
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    first, second, third = suite
    assert first.get("name") == f"{tmp_path}/a<b\ufffd.yaml"
    assert failing in (first.findtext("failure") or "")
    assert ("B202" in (first.findtext("system-out") or "")) != bool(strict)
    assert second.find("failure").get("type") == "L001"  # type: ignore[union-attr]
    assert third.find("failure") is None


def test_github_lines_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a,b:c.yaml"
    path.write_text(COMMENTED)
    assert main(["check", str(path), "--format", "github"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("::error file=") and "title=P101::" in line for line in lines)
    assert all("a%2Cb%3Ac.yaml" in line for line in lines)


def test_json_has_placement_and_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "opd/vlm-16", "roles.rollout.engines=3", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert {"nodes", "seats", "stranded", "homeless"} <= file["placement"].keys()
    assert [each["slots"] for each in file["placement"]["stranded"]] == [1]
    assert {"steps", "optimizer_steps_per_rollout", "samples_per_rank", "padding_samples_per_step", "checkpoints",
            "evals", "checkpoint_bytes", "gpu_hours_asked"} <= file["arithmetic"].keys()  # fmt: skip


def test_the_handbook_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--markdown"]) == 0
    page = Path(__file__).parents[2] / "docs" / "checks.md"
    assert page.read_text() == capsys.readouterr().out, "rltui explain --markdown > docs/checks.md"


def test_the_hook_for_other_repositories_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (hook,) = yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())
    program, *words = hook["entry"].split()
    assert (program, hook["language"]) == ("rltui", "python")
    path = tmp_path / "mine.yaml"
    path.write_text(GPU)
    assert main([*words, str(path)]) == 0
