"""What five field guides recommend and cannot work is refused or warned about, with the reason for it."""

import re
from pathlib import Path

import pytest

from rltui.check.run import REGISTRY, check_file
from rltui.layout.presets import preset_files

ROOT = Path(__file__).parents[2]
ORIGINALS = sorted((ROOT / "tests" / "fixtures" / "guides").glob("*.yaml"))
GUIDED = [(name, path) for name, path in preset_files() if not name.startswith("local/")]


def expected(path: Path) -> list[str]:
    match = re.search(r"^# expect: (.+)$", path.read_text(), re.MULTILINE)
    assert match, f"{path.name} does not say what is expected"
    return match.group(1).split()


@pytest.mark.parametrize("path", ORIGINALS, ids=lambda path: path.stem)
def test_the_guides_original_is_called_what_it_is(path: Path) -> None:
    report = check_file(path)
    found = {finding.code: finding for finding in report.findings}
    for code in expected(path):
        assert code in found, f"{path.name}: {sorted(found)}"
        if code != "L001" and REGISTRY[code].severity != "note":
            assert found[code].severity in ("error", "warning")
        assert found[code].line, f"{path.name}: {code} has no line"


@pytest.mark.parametrize("path", ORIGINALS, ids=lambda path: path.stem)
def test_an_original_has_no_other_error(path: Path) -> None:
    errors = {finding.code for finding in check_file(path).findings if finding.severity == "error"}
    assert errors <= set(expected(path))


@pytest.mark.parametrize(("name", "path"), GUIDED, ids=[name for name, _ in GUIDED])
def test_a_preset_says_what_was_changed_and_uses_every_gpu(name: str, path: Path) -> None:
    header = path.read_text().split("layout: 1")[0].split("base:")[0]
    assert header.startswith("# ")
    assert len(header.split()) > 10
    assert re.search(r"[Aa]s in the guide|As math-|Changed: |The guide ", header.replace("\n# ", " ")), "against what?"
    report = check_file(path)
    assert report.ok
    assert report.placement is not None
    assert report.placement.free_slots == 0
    assert report.arithmetic is not None
    assert report.arithmetic.padding_samples_per_step == 0


def test_every_guide_has_presets_and_originals() -> None:
    assert {name.split("/")[0] for name, _ in GUIDED} >= {
        "open-instruct", "open-instruct-32b", "v100-code", "verl-ppo", "opd"
    }  # fmt: skip
    assert {path.name[0] for path in ORIGINALS} == set("12345")
    assert len(GUIDED) >= 29


def test_the_notes_on_what_the_bundled_trainers_cannot_run_name_no_algorithm() -> None:
    """They run all three: what is left of E390 are data, rewards and options, none of them a role but rewards."""
    for name, path in GUIDED:
        notes = [finding.message for finding in check_file(path).findings if finding.code == "E390"]
        words = notes[0].split("do not run: ")[1].split(", ") if notes else []
        left = ("the task", "the reward", "the role reward", "an evaluation set")
        assert all(word.startswith(left) for word in words), f"{name}: {words}"
