"""``rltui import``: what it prints, and one clear line for what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rltui.cli.main import main
from rltui.layout.load import load_layout, load_text

FIXTURES = Path(__file__).parents[1] / "fixtures" / "import"
MASON = str(FIXTURES / "open_instruct_mason.sh")
KEYS = [
    "schema", "dialect", "layout", "needed_gpus", "declared_gpus", "trainer_gpus", "rollout_gpus", "rollout_tp",
    "rollout_engines", "unmapped", "findings",
]  # fmt: skip


def test_the_layout_goes_to_stdout_and_the_rest_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", MASON]) == 0
    said = capsys.readouterr()
    layout = load_text(said.out, "stdout").layout
    assert layout.name == "open_instruct_mason"
    assert said.out.startswith("layout: 1\nname: open_instruct_mason\n"), "in a layout's order, not the alphabet's"
    assert "open-instruct: GPUs: needs 32, declares 32, trainer 16, rollout 16" in said.err
    assert "no place in a layout: --exp_name, --stop_strings" in said.err


def test_json_has_every_key_and_the_findings_of_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", MASON, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert list(values) == ["schema", *sorted(values.keys() - {"schema"}, key=list(values).index)]
    assert sorted(values) == sorted(KEYS)
    assert values["schema"] == 1
    assert values["layout"]["roles"]["rollout"]["engines"] == 8
    assert all({"code", "severity", "message"} <= finding.keys() for finding in values["findings"])


def test_unknown_is_null_and_no_layout_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    script = str(FIXTURES / "miles_open.sh")
    assert main(["import", script, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["layout"] is None
    assert values["needed_gpus"] is None
    assert values["findings"] == []
    assert main(["import", script]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "needs unknown" in said.err


def test_output_is_written_once_and_never_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "layout.yaml"
    assert main(["import", MASON, "--output", str(target)]) == 0
    assert load_layout(target).layout.roles.learner.gpus == [8, 8]
    assert capsys.readouterr().out == ""
    target.write_text("mine\n")
    assert main(["import", MASON, "--output", str(target)]) == 2
    assert target.read_text() == "mine\n"


def empty(path: Path) -> None:
    path.write_text("")


def binary(path: Path) -> None:
    path.write_bytes(b"\x7fELF\0\0")


def latin(path: Path) -> None:
    path.write_bytes("echo ü\n".encode("latin-1"))


def huge(path: Path) -> None:
    path.write_bytes(b"# x\n" * 300_000)


def directory(path: Path) -> None:
    path.mkdir()


def circle_of_links(path: Path) -> None:
    path.symlink_to(path)


def nothing(path: Path) -> None:
    """Leave no file there."""


def shell(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text)

    return write


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.sh", empty, "is empty"),
        ("a.sh", binary, "is binary"),
        ("a.sh", latin, "is not UTF-8"),
        ("a.sh", huge, "larger than 1 MiB"),
        ("a.sh", directory, "is a directory"),
        ("a.sh", circle_of_links, "cannot be read"),
        ("a.sh", nothing, "cannot be read"),
        ("a.sh", shell("echo hello\n"), "no training that is known"),
        ("a.sh", shell("A='open\n"), "line 1: a quote"),
        ("a.sh", shell("f() { f; }\nf\n"), "call each other without end"),
        ("a.sh", shell("A=0123456789\n" + "A=$A$A$A$A$A$A$A$A$A$A\n" * 9), "grows without end"),
        ("a.sh", shell('A="$(' * 5000), "nested too deep"),
        ("a.sh", shell("true && " * 30_000 + "true\n"), "nested too deep"),
        ("a.sh", shell('echo "${A:-it' * 2000), "nested too deep"),
        ("a.py", shell("import os\n"), "is a .py file"),
        ("a.yaml", shell("a: [1\n"), "not valid YAML"),
        ("a.yaml", shell("a: !!python/object/apply:os.system [ls]\n"), "not valid YAML"),
        ("a.yaml", shell("just text\n"), "no mapping"),
        ("a.yaml", shell("a: 1\n"), "no training system that is known"),
        ("a.yaml", shell("[" * 200 + "]" * 200), "nested deeper"),
        ("a.yaml", shell("a: &a [1]\n" + "".join(f"b{i}: *a\n" for i in range(200))), "more values"),
        (
            "a.yaml",
            shell("a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 30))),
            "more",
        ),
        ("a.yaml", shell("defaults: a.yaml\npolicy: {model_name: m}\ncluster: {num_nodes: 1}\n"), "come back to"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / name
    make(path)
    assert main(["import", str(path)]) == 2
    said = capsys.readouterr()
    first = said.err.splitlines()[0]
    assert first.startswith("rltui: ")
    assert message in first
    assert "Traceback" not in said.err
    assert said.out == ""


def test_control_characters_of_a_script_never_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text("python open_instruct/grpo_fast.py --model_name_or_path 'a\x1b[2Jb' --x\x1b]0;y 1\n")
    for words in (["import", str(script)], ["import", str(script), "--json"]):
        assert main(words) == 0
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err


def test_toml_that_is_not_prime_rls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tomllib")
    for text, message in (("a = [1", "not valid TOML"), ("a = 1\n", "no training system")):
        path = tmp_path / "a.toml"
        path.write_text(text)
        assert main(["import", str(path)]) == 2
        assert message in capsys.readouterr().err.splitlines()[0]


def test_defaults_in_a_circle_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(FIXTURES / "nemo" / "circle-a.yaml")]) == 2
    assert "circle" in capsys.readouterr().err


def _open_script(tmp_path: Path) -> str:
    path = tmp_path / "open.sh"
    path.write_text(
        "python3 -m verl.trainer.main_ppo trainer.nnodes=$NNODES trainer.n_gpus_per_node=$GPUS "
        "algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.n=8 "
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2\n"
    )
    return str(path)


@pytest.mark.parametrize(
    "said", [["NNODES=2", "GPUS=4"], ["hardware.nodes=2", "hardware.gpus_per_node=4"], ["NNODES=2", "GPUS=8", "GPUS=4"]]
)
def test_what_a_script_leaves_open_can_be_given(
    said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = _open_script(tmp_path)
    assert main(["import", script]) == 1
    capsys.readouterr()
    words = [part for word in said for part in ("--set", word)]
    assert main(["import", script, "--gpu", "H100", *words]) == 0
    layout = load_text(capsys.readouterr().out, "stdout").layout
    assert (layout.hardware.nodes, layout.hardware.gpus_per_node, layout.hardware.gpu) == (2, 4, "H100")
    assert layout.num_engines == 4


def test_an_override_that_is_no_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", _open_script(tmp_path), "--set", "hardware.nodez=2"]) == 2
    assert "hardware.nodez" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["train.prompts_per_step=many", "roles.rollout.tensor_parallel=null", "system=3"])
def test_an_override_that_no_layout_takes_is_refused(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", _open_script(tmp_path), "--set", word]) == 2
    assert "must be" in capsys.readouterr().err
