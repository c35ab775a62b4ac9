"""The verbs that need no cluster, as a shell sees them: stdout, stderr and exit code."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rltui.cli.main import main
from rltui.cli.verbs import load, parser_for
from rltui.service.verb_table import VERBS, WORDS

TINY = "local/grpo-tiny"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("check", ["check", "--check"])
def test_check_says_what_it_found(capsys: pytest.CaptureFixture[str], check: str) -> None:
    code, out, err = run(capsys, check, TINY)
    assert (code, err) == (0, "")
    assert "no findings" in out
    assert "node0 ┃ L0 ┃ L0 ┃ E0 ┃" in out
    code, out, _ = run(capsys, check, TINY, "train.steps=0")
    assert code == 1
    assert "✗ B201 train.steps: train.steps is 0" in out


def test_check_exit_codes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("layout: 1\nname: x\nalgorithm: grop\n")
    assert run(capsys, "check", str(broken))[0] == 2
    assert run(capsys, "check", TINY, str(broken))[0] == 2
    assert run(capsys, "check", str(tmp_path / "none.yaml"))[0] == 2
    assert run(capsys, "check", TINY, "hardware.gpus_per_node=5")[0] == 0
    assert run(capsys, "check", TINY, "hardware.gpus_per_node=5", "--strict")[0] == 1


def test_check_json_has_the_promised_form(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", TINY, "train.steps=0", "--json")
    report = json.loads(out)
    assert (code, report["schema"]) == (1, 1)
    (file,) = report["files"]
    assert file["ok"] is False
    assert {"code", "severity", "line", "key", "message", "fix"} <= file["findings"][0].keys()
    assert file["arithmetic"]["steps"] == 0
    assert file["placement"]["seats"]


def test_check_reads_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b"layout: 1\nname: \xff\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    code, _, err = run(capsys, "check", "-")
    assert code == 2
    assert "<stdin>:2: is not UTF-8 text" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["lunch"], 2, "Did you mean `rltui launch`?"),
        (["frobnicate"], 2, "`rltui --help` lists the verbs."),
        (["kill", "r"], 2, "Did you mean `rltui cancel`?"),
        (["list-presets"], 2, "Did you mean `rltui ps` or `rltui layouts`?"),
        (["oom"], 2, "Did you mean `rltui why` or `rltui fix` or `rltui mem`?"),
        (["help", "frobnicate"], 2, "No verb is known for 'frobnicate'."),
        (["check"], 2, "`rltui check` needs FILE"),
        (["logs"], 2, "`rltui ps` lists runs; `rltui logs --help` tells more."),
        (["logs", "r", "--folow"], 2, "does not take --folow.\n  Did you mean --follow? `rltui logs --help`"),
        (["logs", "r", "--zzz"], 2, "does not take --zzz.\n  `rltui logs --help`"),
        (["--redonly"], 2, "Did you mean --readonly?"),
        (["check", "a=b"], 2, "Name at least one layout."),
        (["check", "grpo-tinny"], 2, "Did you mean 'local/grpo-tiny'?"),
        (["draw", "local/none"], 2, "No preset or layout file"),
        (["explain", "P999"], 2, "There is no code 'P999'"),
        (["check", "a" * 300], 2, "No preset or layout file"),
        (["launch", f"{'a' * 300}.sh"], 2, "cannot be read: File name too long"),
        (["why", "--log", "a" * 300], 2, "There is no file"),
        (["mem", "a" * 300], 2, "No preset or layout file"),
        (["replay", "~nobody-of-this-name/r.tar.gz"], 2, "cannot be read: No such file"),
        (["ps", ""], 2, "`rltui ps` does not take an empty word."),
        (["adopt", "--pid", str(os.getpid())], 2, "has started this shell, too.\n  Name the training's own"),
        (["launch", TINY, "--cluster", "moon"], 2, "There is no cluster 'moon'"),
    ],
)
def test_usage_errors_name_cause_and_next_step(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    try:
        found = main(words)
    except SystemExit as error:  # argparse
        found = int(error.code or 0)
    captured = capsys.readouterr()
    assert found == code
    assert said in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("words", "verbs"),
    [
        ("hanging", ["why"]),
        ("bad node", ["resubmit", "fix", "auto"]),
        ("my disk is full", ["du"]),
        ("Slack", ["notify"]),
    ],
)
def test_a_verb_is_found_by_what_somebody_wants(
    capsys: pytest.CaptureFixture[str], words: str, verbs: list[str]
) -> None:
    code, out, _ = run(capsys, "help", *words.split())
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, verbs)
    told = json.loads(run(capsys, "help", *words.split(), "--json")[1])["verbs"]
    assert sorted(one["verb"] for one in told) == sorted(verbs)


def test_help_has_every_verb_once_and_that_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "help")
    assert code == 0
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(verb.name for verb in VERBS) == sorted(WORDS)
    assert "--nodes" in run(capsys, "help", "launch")[1]


def test_every_verb_has_help() -> None:
    for verb in VERBS:
        text = parser_for(verb, load(verb)).format_help()
        assert verb.name in text
        assert "exit codes" in text


def test_keys_are_those_of_the_screens(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "keys")
    assert code == 0
    assert all(len(line) <= 100 for line in out.splitlines())
    assert "Choose a preset and a cluster" in out
    assert out.count("Down.") == 1, "what all screens have is printed once"
    screens = json.loads(run(capsys, "keys", "runs", "--json")[1])["screens"]
    assert list(screens) == ["runs"]
    assert {"id": "mark_all", "keys": ["*"], "group": "runs"}.items() <= next(
        key for key in screens["runs"] if key["id"] == "mark_all"
    ).items()
    code, _, said = run(capsys, "keys", "nowhere")
    assert code == 2
    assert "There are runs, run, launch" in said


def test_layouts_schema_draw_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert TINY in run(capsys, "layouts")[1]
    assert TINY in [one["name"] for one in json.loads(run(capsys, "layouts", "--json")[1])["layouts"]]
    schema = json.loads(run(capsys, "schema")[1])
    assert schema["$defs"]["Train"]["properties"]["steps"]["description"]
    code, out, _ = run(capsys, "draw", TINY, "roles.rollout.engines=2")
    assert code == 1
    assert "no room for engine 1" in out
    assert "B201" in run(capsys, "explain")[1]
    assert run(capsys, "explain", "p105")[1].startswith("P105 (error): The totals fit")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_scripts_name_the_verbs(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert "resubmit" in run(capsys, "completion", shell)[1]


def test_bash_accepts_the_completion_script(capsys: pytest.CaptureFixture[str]) -> None:
    script = run(capsys, "completion", "bash")[1]
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)


def test_fish_is_told_each_option_and_who_knows_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "completion", "fish")[1].splitlines()
    clusters = "-l cluster -x -d 'also check against this cluster\\'s profile' -a '(rltui completion --words clusters)'"
    own = [line for line in lines if "from check'" in line]
    assert f"complete -c rltui -n '__fish_seen_subcommand_from check' {clusters}" in own
    assert any(line.endswith("-l format -x -d 'default: text' -a 'text json sarif github junit'") for line in own)
    assert any(line.endswith(" -F -a '(rltui completion --words sources)'") for line in own)
    assert sum("-n __fish_use_subcommand " in line for line in lines) == len(VERBS)
    if shutil.which("fish"):
        subprocess.run(["fish", "--no-execute"], input="\n".join(lines).encode(), check=True)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sources", {TINY, "opd/text-8", "roles.learner.gpus=", "train.prompts_per_step=", "hardware.gpu="}),
        ("keys", {"roles.learner.gpus=", "train.steps="}),
        ("codes", {"B201", "F101", "S612", "nccl_timeout"}),
        ("clusters", {"local"}),
        ("runs", set()),
    ],
)
def test_completion_knows_the_words_that_there_are_now(
    capsys: pytest.CaptureFixture[str], kind: str, expected: set[str]
) -> None:
    words = run(capsys, "completion", "--words", kind)[1].split()
    assert expected <= set(words)
    assert len(words) == len(set(words))


def test_bash_completes_presets_keys_codes_clusters_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    script = run(capsys, "completion", "bash")[1]
    program = f'rltui() {{ "{sys.executable}" -m rltui "$@"; }}\n'
    asked = """
    try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_rltui; echo "${COMPREPLY[@]}"; }
    try rltui check local/grpo-t
    try rltui check roles.learner.lora_r
    try rltui explain F10
    try rltui check --cluster loc
    try rltui doctor loc
    try rltui launch local/grpo-tiny roles.learner.lora_r
    cd tests/fixtures/recording && try rltui replay grpo
    """
    done = subprocess.run(["bash"], input=program + script + asked, capture_output=True, text=True, check=True)
    presets, keys, codes, clusters, named, changes, files = done.stdout.splitlines()
    assert TINY in presets.split()
    assert keys == changes == "roles.learner.lora_rank="
    assert {"F101", "F109"} <= set(codes.split())
    assert (clusters, named, files) == ("local", "local", "grpo-tiny.tar.gz")


def test_completion_without_a_shell_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "completion")
    assert code == 2
    assert "source <(rltui completion bash)" in err


def test_the_cockpit_refuses_what_is_no_terminal() -> None:
    done = subprocess.run([sys.executable, "-m", "rltui"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2
    assert "The cockpit needs a terminal." in done.stderr
    assert "rltui ps" in done.stderr


def test_a_closed_pipe_is_no_error() -> None:
    pipeline = ["sh", "-c", '"$1" -m rltui schema | head -1', "sh", sys.executable]
    done = subprocess.run(pipeline, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("latin-1", "x.yaml"), ("utf-8", os.fsdecode(b"\xff.yaml")), ("ascii:surrogateescape", "é.yaml")],
)
def test_what_a_terminal_cannot_show_ends_no_verb(encoding: str, name: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rltui", "check", str(tmp_path / name)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(words, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"cannot be read: No such file" in done.stdout
    assert b"should not have happened" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_end_no_verb(closed: str) -> None:
    words = ["sh", "-c", f'"$1" -m rltui layouts {closed}', "sh", sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_defect_where_no_file_can_be_written_is_told_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    monkeypatch.setattr("rltui.cli.draw.draw", lambda *_: 1 // 0)
    code, out, err = run(capsys, "draw", TINY)
    assert (code, out) == (70, "")
    assert "in <lambda>" in err
    assert err.endswith("The details are above; please report them. Runs go on.\n")


def test_a_defect_is_one_line_and_a_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from rltui.cli import main as module

    def broken(_: object) -> int:
        raise ZeroDivisionError("nought")

    monkeypatch.setattr(module, "_dispatch", broken)
    code, out, err = run(capsys, "ps")
    assert (code, out) == (70, "")
    assert "ZeroDivisionError: nought" in err
    path = next(word for word in err.split() if word.startswith(os.sep)).rstrip(";")
    assert "in broken" in Path(path).read_text()
    Path(path).unlink()


def test_check_on_a_cluster_needs_its_name_and_knows_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rltui").mkdir()
    (tmp_path / "rltui" / "clusters.yaml").write_text("alps9: {scheduler: slurm, max_time: '01:00:00'}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["check", "local/grpo-tiny", "--live"]) == 2
    assert main(["check", "local/grpo-tiny", "--cluster", "alps8"]) == 2
    assert "Did you mean 'alps9'" in capsys.readouterr().err
    assert main(["check", "local/grpo-tiny", "--cluster", "alps9", "slurm.time=02:00:00"]) == 1
    assert "S611" in capsys.readouterr().out
    assert main(["check", "local/grpo-tiny", "--cluster", "alps9", "slurm.time=01:00:00"]) == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["draw", "local/none", "--json"], 2, "No preset or layout file"),
        (["explain", "P999", "--json"], 2, "There is no code 'P999'"),
        (["check", "--json"], 2, "needs FILE"),
        (["check", TINY, "--fix", "--write", "a.b=1", "--format", "json"], 2, "--write needs --fix"),
        (["launch", TINY, "--cluster", "moon", "--json"], 2, "There is no cluster 'moon'"),
    ],
)
def test_errors_under_json_are_json_of_one_shape(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    found, out, err = run(capsys, *words)
    error = json.loads(out)["error"]
    assert error.keys() == {"message", "hint", "exit_code"}
    assert found == code == error["exit_code"]
    assert said in error["message"]
    assert said in err


def test_a_crash_under_json_is_json_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("rltui.cli.draw.draw", lambda *_: 1 // 0)
    code, out, _ = run(capsys, "draw", TINY, "--json")
    assert (code, json.loads(out)["error"]["exit_code"]) == (70, 70)


def test_draw_and_explain_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = json.loads(run(capsys, "draw", TINY, "--json")[1])
    assert drawn["placement"]["seats"][0]["role"] == "learner"
    assert "┃ L0 ┃" in drawn["drawing"][0]
    listed = json.loads(run(capsys, "explain", "--json")[1])
    assert {"P101", "F101", "S612"} <= {rule["code"] for rule in listed["rules"]}
    assert "nccl_timeout" in {cause["id"] for cause in listed["causes"]}
    assert json.loads(run(capsys, "explain", "p105", "--json")[1])["code"] == "P105"
    assert "What helps" in json.loads(run(capsys, "explain", "nccl_timeout", "--json")[1])["story"]


def test_a_layout_for_gpus_is_refused_on_a_machine_without_a_card(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLTUI_LOCAL_GPUS", "0")
    code, out, err = run(capsys, "launch", "opd/text-8")
    assert code == 1
    assert "H411" in out + err
    code, out, _ = run(capsys, "check", "opd/text-8", "--cluster", "local")
    assert code == 1
    assert "H411" in out
    assert "8 GPUs a node; nodes of local have 0" in out
    assert run(capsys, "check", TINY, "--cluster", "local")[0] == 0
    monkeypatch.setenv("RLTUI_LOCAL_GPUS", "8")
    assert "H411" not in run(capsys, "check", "opd/text-8", "--cluster", "local")[1]
