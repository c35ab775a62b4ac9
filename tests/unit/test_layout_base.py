"""Inheritance: sections are merged, lines and files stay right, and circles and missing bases are one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_cases import TINY

from rltui.check.run import check_file
from rltui.cli.main import main
from rltui.layout.errors import LayoutError
from rltui.layout.load import load_layout, load_text
from rltui.layout.origins import AT_LAUNCH, origin_of, origins
from rltui.layout.presets import preset_files


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def problem_of(path: Path) -> str:
    with pytest.raises(LayoutError) as caught:
        load_layout(path)
    assert len(caught.value.problems) == 1
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_sections_are_merged_and_lists_are_replaced(tmp_path: Path) -> None:
    write(tmp_path / "below.yaml", TINY)
    upper = write(tmp_path / "upper.yaml", "base: below.yaml\ntrain: {steps: 7}\nroles: {learner: {gpus: [1]}}\n")
    layout = load_layout(upper).layout
    below = load_text(TINY, "x").layout
    assert (layout.train.steps, layout.train.prompts_per_step) == (7, below.train.prompts_per_step)
    assert (layout.roles.learner.gpus, layout.roles.learner.model) == ([1], below.roles.learner.model)


def test_null_takes_a_role_away(tmp_path: Path) -> None:
    upper = write(tmp_path / "upper.yaml", "base: verl-ppo/ppo-1x4-split\nalgorithm: grpo\nroles: {critic: null}\n")
    assert load_layout(upper).layout.roles.critic is None


def test_a_preset_can_be_a_base_and_overrides_come_last(tmp_path: Path) -> None:
    upper = write(tmp_path / "upper.yaml", "base: local/grpo-tiny\ntrain: {steps: 7}\n")
    assert load_layout(upper, ["train.steps=8"]).layout.train.steps == 8


def test_every_key_knows_its_file_and_line(tmp_path: Path) -> None:
    below = write(tmp_path / "below.yaml", TINY)
    upper = write(tmp_path / "upper.yaml", "base: below.yaml\nname: mine\ntrain:\n  steps: 7\n")
    loaded = load_layout(upper)
    line = next(n for n, text in enumerate(TINY.splitlines(), 1) if text.startswith("train:"))
    assert loaded.place("train.steps") == (str(upper), 4)
    assert loaded.place("train.prompts_per_step") == (str(below), line)
    assert loaded.place("name") == (str(upper), 2)
    assert loaded.place("train.seed") == (str(upper), 3)  # a default: the section that it would stand in


def test_an_override_stands_in_no_line_of_a_base(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", TINY)
    path = write(tmp_path / "mine.yaml", "base: base.yaml\nname: mine\n")
    loaded = load_layout(path, ["roles.learner={model: builtin/tiny-qwen3, gpus: [1]}", "train.steps=3"])
    for key in ("roles.learner.gpus", "train.steps"):
        assert loaded.place(key) == (str(path), 0)
        assert origin_of(key, origins(loaded)) == AT_LAUNCH


def test_findings_and_problems_name_the_base(tmp_path: Path) -> None:
    below = write(tmp_path / "below.yaml", TINY.replace("steps: 2000", "steps: 0"))
    upper = write(tmp_path / "upper.yaml", "base: below.yaml\nname: mine\n")
    finding = next(finding for finding in check_file(upper).findings if finding.code == "B201")
    assert (finding.file, finding.line > 0) == (str(below), True)
    write(below, TINY.replace("steps: 2000", "stepz: 1"))
    found = [problem for problem in check_file(upper).findings if problem.key == "train.stepz"]
    assert [problem.file for problem in found] == [str(below)]


def test_bases_may_have_bases(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", TINY)
    write(tmp_path / "b.yaml", "base: a.yaml\ntrain: {steps: 5}\n")
    (tmp_path / "sub").mkdir()
    c = write(tmp_path / "sub" / "c.yaml", "base: ../b.yaml\ntrain: {prompts_per_step: 4}\n")
    loaded = load_layout(c)
    assert (loaded.layout.train.steps, loaded.layout.train.prompts_per_step) == (5, 4)
    assert Path(loaded.place("train.steps")[0]).name == "b.yaml"
    assert Path(loaded.place("train.samples_per_prompt")[0]).name == "a.yaml"


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("other.yaml", "upper.yaml:1: base: cannot be used: "),
        ("no-such-preset", "upper.yaml:1: base: no preset or layout file is called 'no-such-preset'"),
        ("upper.yaml", "upper.yaml:1: base: is circular: upper.yaml → upper.yaml"),
        ("[a, b]", "upper.yaml:1: base: must be the name of a preset or the path"),
        ("''", "upper.yaml:1: base: must be the name"),
        ("'a\\0b.yaml'", "upper.yaml:1: base:"),
        (".", "upper.yaml:1: base: cannot be used: "),
    ],
)
def test_bases_that_cannot_be_are_one_clear_line(tmp_path: Path, base: str, words: str) -> None:
    said = problem_of(write(tmp_path / "upper.yaml", f"base: {base}\n{TINY}"))
    assert words in said
    assert "\n" not in said


def test_circles_of_several_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "base: b.yaml\n")
    write(tmp_path / "b.yaml", "base: a.yaml\n")
    assert "is circular: a.yaml → b.yaml → a.yaml" in problem_of(tmp_path / "a.yaml")


def test_a_chain_has_an_end(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / f"{number}.yaml", f"base: {number + 1}.yaml\n")
    assert "16th layout of a chain" in problem_of(tmp_path / "0.yaml")


def test_the_shell_sees_exit_code_2_and_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upper = write(tmp_path / "upper.yaml", "base: none.yaml\n")
    assert main(["check", str(upper)]) == 2
    captured = capsys.readouterr()
    assert "No such file" in captured.out
    assert "Traceback" not in captured.out + captured.err


def test_presets_with_a_base_are_whole() -> None:
    based = [(name, path) for name, path in preset_files() if "\nbase:" in path.read_text()]
    assert based
    for name, path in based:
        assert load_layout(path).layout.name == name.split("/")[-1]
