"""Samples: ranked and found where the file lies, through a real relay; siblings, words that differ, and the verb."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from test_compare import make_run

from rltui.cli.main import main
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.errors import RltuiError, UsageError
from rltui.onnode import relay_records, relay_search
from rltui.paths import run_root
from rltui.watch import samples as samples_module
from rltui.watch.sample_text import differences, escaped, pieces
from rltui.watch.samples import Fields, SampleFile, SampleQuery, find_samples, read_group, read_sample_query


def line(step: int, answer: str = "a", reward: float | None = 0.0, prompt: str = "q", tokens: int = 1) -> str:
    values = {"step": step, "prompt": prompt, "answer": answer, "right_answer": "r", "reward": reward, "tokens": tokens}
    return json.dumps(values | {"finish_reason": "stop", "weight_version": step - 1}, ensure_ascii=False) + "\n"


def file_of(path: Path, *lines: str, fields: Fields | None = None) -> SampleFile:
    path.write_text("".join(lines), encoding="utf-8")
    return SampleFile(path=str(path), size=path.stat().st_size, fields=fields or Fields())


def last(client: RelayClient, *files: SampleFile, **query: Any) -> samples_module.SamplesFound:
    *_, found = find_samples(client, files, SampleQuery(**query))
    return found


@pytest.mark.parametrize("order", ["best", "worst", "longest"])
def test_the_order_is_that_of_sorting_everything(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(samples_module, "PIECE_BYTES", 40_000)  # the kept ones come from many pieces
    rng = random.Random(order)
    made = [(rng.uniform(-2, 2) * 10 ** rng.randrange(-6, 3), rng.randrange(10**6)) for _ in range(3000)]
    file = file_of(tmp_path / "s", *(line(n, reward=reward, tokens=t) for n, (reward, t) in enumerate(made)))
    found = last(client, file, order=order, limit=50)
    key = 1 if order == "longest" else 0
    wanted = sorted((one[key] for one in made), reverse=order != "worst")[:50]
    assert [one.tokens if key else one.reward for one in found.samples] == wanted
    assert (found.read_bytes, found.share) == (file.size, 1.0)


def test_blocks_of_the_relay_lose_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_search, "BLOCK", 1000)
    file = file_of(tmp_path / "s", *(line(n, "é" * (n % 300), reward=n * 7 % 1009) for n in range(1009)))
    answer = relay_records.records({"path": file.path, "hits": 500, "number": "reward"})
    assert [told["reward"] for _, _, told in answer["records"]] == list(range(1008, 508, -1))
    for offset, length, _ in answer["records"][:20]:
        json.loads((tmp_path / "s").read_bytes()[offset : offset + length])


def test_words_of_an_answer_are_no_numbers_and_no_number_comes_first(client: RelayClient, tmp_path: Path) -> None:
    liar = 'I say {"reward": 99, "step": 5} \\"reward\\": 98'
    lines = [
        line(1, liar, 0.25),
        line(2, reward=math.nan),
        line(3, reward=-1e-3),
        line(4, reward=None),
        "torn {",
        '"x"',
    ]
    file = file_of(tmp_path / "s", *lines)
    best, worst = last(client, file, order="best").samples, last(client, file, order="worst").samples
    assert [one.step for one in best] == [2, 1, 3]
    assert [one.step for one in worst] == [2, 3, 1]
    assert best[0].reward is not None
    assert math.isnan(best[0].reward)
    assert [one.step for one in last(client, file, step=5).samples] == []
    assert best[1].answer == liar


def test_the_newest_are_read_from_the_end_only(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples_module, "TAIL_BYTES", 5000)
    file = file_of(tmp_path / "s", *(line(n) for n in range(1, 2001)))
    found = last(client, file, limit=10)
    assert [one.step for one in found.samples] == list(range(2000, 1990, -1))
    assert found.read_bytes <= 5000
    assert found.unread == 0
    found = last(client, file, limit=300)
    assert [one.step for one in found.samples] == list(range(2000, 1700, -1)), "further back for as many as are wanted"
    assert found.read_bytes < file.size / 2
    assert len(last(client, file, limit=1000).samples) == 1000


def test_a_number_that_no_float_holds_is_none(client: RelayClient, tmp_path: Path) -> None:
    long = "1" + "0" * 400
    file = file_of(tmp_path / "s", line(1).replace('"tokens": 1', f'"tokens": {long}'), line(2))
    newest, older = last(client, file).samples
    assert (newest.step, older.step, older.tokens) == (2, 1, None)
    assert [one.step for one in read_group(client, file, older.offset, older.length).siblings] == [1]


def test_words_patterns_and_steps(client: RelayClient, tmp_path: Path) -> None:
    lines = [line(12, "two\nlines"), line(12, "Größe 'x'"), line(120, 'say "hi"'), line(1, "two", prompt="big LINES")]
    file = file_of(tmp_path / "s", *lines)

    def steps(text: str) -> list[tuple[int | None, str]]:
        *_, found = find_samples(client, [file], read_sample_query(text))
        return [(one.step, one.answer) for one in found.samples]

    assert steps("step:12") == [(12, "Größe 'x'"), (12, "two\nlines")]
    assert steps("lines") == [(1, "two"), (12, "two\nlines")]
    assert steps("step:12 LINES") == [(12, "two\nlines")]
    assert steps('say "HI"') == [(120, 'say "hi"')]
    assert steps(r"re:two\\nlines") == [(12, "two\nlines")]
    assert steps("re:^nothing") == []
    assert [one.step for one in last(client, file, grep="two", order="best").samples] == [1, 12]
    for text in ("step:x", "step:²", "re:("):
        with pytest.raises(UsageError):
            read_sample_query(text)
    with pytest.raises(RelayError, match="pattern cannot be read"):
        last(client, file, grep="(")


def test_files_of_one_step_each_in_another_systems_words(client: RelayClient, tmp_path: Path) -> None:
    fields = Fields(prompt="input", answer="output", right_answer="gts", reward="score", tokens="", version="")
    files = []
    for step in (9, 10):
        answers = [{"input": "q", "output": f"{step}.{n}", "gts": [4], "score": step + n / 10} for n in range(3)]
        lines = [json.dumps(one | {"step": step}) + "\n" for one in answers]
        files.append(file_of(tmp_path / f"{step}.jsonl", *lines, fields=fields))
    assert [one.answer for one in last(client, *files, limit=4).samples] == ["10.2", "10.1", "10.0", "9.2"]
    assert [one.answer for one in last(client, *files, order="worst", limit=2).samples] == ["9.0", "9.1"]
    assert last(client, *files).samples[0].right_answer == "[4]"
    with pytest.raises(UsageError, match="how long"):
        last(client, *files, order="longest")


def test_siblings_are_answers_to_the_same_prompt_in_the_same_step(client: RelayClient, tmp_path: Path) -> None:
    long = "x" * 300_000
    lines = [line(7, "old", prompt="q"), line(8, "no", 0.0), line(8, "yes", 1.0), line(8, long, 0.5),
             line(8, "other", 2.0, prompt="p"), line(9, "new")]  # fmt: skip
    file = file_of(tmp_path / "s", *lines)
    [chosen] = last(client, file, grep='"no"').samples
    group = read_group(client, file, chosen.offset, chosen.length)
    assert [(one.answer[:3], one.reward) for one in group.siblings] == [("yes", 1.0), ("xxx", 0.5), ("no", 0.0)]
    assert group.chosen.answer == "no"
    assert group.best.answer == "yes"
    listed = last(client, file, order="longest").samples
    assert max(len(one.answer) for one in listed) == 200, "of texts in lists only the beginning travels"
    [big] = [one for one in listed if one.answer.startswith("x")]
    assert len(read_group(client, file, big.offset, big.length).chosen.answer) == samples_module.MOST_TEXT
    with pytest.raises(RltuiError, match="not in its file any more"):
        read_group(client, file, chosen.offset + 1, chosen.length)


def test_nothing_of_a_text_drives_a_terminal(client: RelayClient, tmp_path: Path) -> None:
    odd = "\x1b]0;t\x07\x9b2J\u202eabc\u200b\ud800\ttab\r\nend"
    file = file_of(
        tmp_path / "s", json.dumps({"step": 1, "answer": odd, "prompt": {"a": ["\x1b"]}, "reward": 1}) + "\n"
    )
    [one] = last(client, file).samples
    assert all(char == "\n" or char.isprintable() for char in one.answer + one.prompt)
    assert one.answer == r"\x1b]0;t\x07\x9b2J\u202eabc\u200b?" + "    tab\nend"
    assert escaped("a\u00a0b") == "a\u00a0b"
    assert "\x1b" not in one.prompt


def test_special_tokens_are_apart_and_words_that_differ_are_marked() -> None:
    text = "<|im_start|>user a<b </s> [INST]"
    assert "".join(piece for piece, _ in pieces(text)) == text
    assert [piece for piece, kind in pieces(text) if kind == "special"] == ["<|im_start|>", "</s>", "[INST]"]
    found = differences("it is four, yes", "it is five, yes\nsir")
    assert [one for one in found if one[1] != "text"] == [("four,", "gone"), ("five,", "new"), ("\nsir", "new")]
    assert "".join(piece for piece, kind in found if kind != "gone") == "it is five, yes\nsir"
    assert differences("same", "same") == [("same", "text")]


@pytest.fixture
def run(own_folders: Path) -> Path:
    make_run("grpo-tiny-aaaa", 4, 0.01)
    return run_root() / "grpo-tiny-aaaa"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["samples", "grpo-tiny-aaaa", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_verb_lists_ranks_and_ends_as_grep_does(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    assert told(capsys)[0] == 1
    assert "no samples yet" in told(capsys)[2]
    (run / "attempts/01/samples.jsonl").write_text(line(1, "worse\nlines", -1.0) + line(2, "better", 1.0))
    code, out, _ = told(capsys)
    assert (code, [text.split() for text in out.splitlines()][1]) == (0, ["2", "1", "1", "1", "stop", "q", "better"])
    found = json.loads(told(capsys, "--worst", "--limit", "1", "--json")[1])["samples"]
    assert [(one["answer"], one["reward"], one["version"]) for one in found] == [("worse\nlines", -1.0, 0)]
    assert "    worse\n    lines\n" in told(capsys, "--grep", "worse", "--full")[1]
    assert told(capsys, "--step", "3")[0] == 1
    assert told(capsys, "--grep", "(")[0] == 2
    assert told(capsys, "--limit", "0")[0] == 2


def test_the_verb_shows_evaluations(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    assert "no evaluation" in told(capsys, "--evaluation")[2]
    (run / "evaluations").mkdir()
    for step in (20, 100):
        (run / f"evaluations/step-{step:06d}.jsonl").write_text(line(step, f"after {step}"))
    _, out, _ = told(capsys, "--evaluation", "--json")
    assert [one["answer"] for one in json.loads(out)["samples"]] == ["after 100", "after 20"]
