"""Several clusters: whose runs, which are away, which need somebody, and the questions on the way in."""

from __future__ import annotations

import msgspec
import pytest
from canned_actions import AWAY, CLUSTERS, CODE
from canned_runs import RUNS
from fake_cockpit import HANG_S, FakeCockpit
from pictures import cockpit, enter, flushed, notices, press, screen_lines, screen_text, settled, until, until_text

from rltui.cluster.prompts import Field, Question
from rltui.service.cockpit import ActionPreview, Ask
from rltui.tui.screens.clusters import ClustersScreen
from rltui.tui.screens.confirm import ConfirmScreen
from rltui.tui.screens.door import DoorScreen
from rltui.tui.screens.launch import LaunchScreen
from rltui.tui.screens.pick import NodesScreen, PickScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.runs import RunsScreen

KEY = Question(
    kind="host-key",
    title="login.mila.quebec is not known",
    fields=(Field("Type yes, or the fingerprint:", True),),
    instructions=("its key is ED25519 SHA256:abcdefghijklmnop",),
)


async def test_a_column_says_where_each_run_is_and_brackets_show_one_cluster() -> None:
    async with cockpit(size=(100, 30)) as pilot:
        await until_text(pilot, "CLUSTER")
        await press(pilot, "]")
        await until_text(pilot, "local only")
        assert {run.cluster for run in pilot.app.screen.table.rows} == {"local"}
        await press(pilot, "]")
        await until_text(pilot, "isambard only")
        assert {run.cluster for run in pilot.app.screen.table.rows} == {"isambard"}
        await press(pilot, "escape")
        assert len(pilot.app.screen.table.rows) == len(RUNS)
        await enter(pilot, "/cluster:isam\n")
        assert {run.cluster for run in pilot.app.screen.table.rows} == {"isambard"}


async def test_one_cluster_needs_no_column() -> None:
    local = tuple(run for run in RUNS if run.cluster == "local")
    async with cockpit(FakeCockpit(all_runs=local, all_clusters=CLUSTERS[:1]), size=(120, 30)) as pilot:
        await until_text(pilot, "STATE")
        await settled(pilot)
        assert "CLUSTER" not in screen_text(pilot)


async def test_a_pending_run_says_why_and_for_how_long() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        await press(pilot, *"jjjjjjjjj")
        await until_text(pilot, "#31 in line, starts in ~2h10: Jobs with a higher priority are in front of it")
        rows = [row for row in screen_lines(pilot) if "grpo-32b-16x4-0c1d" in row]
        assert "◷ queued  #31 ~2h10 Priority" in rows[0]


async def test_clusters_that_are_away_stand_in_the_header_and_in_their_rows() -> None:
    async with cockpit(FakeCockpit(all_clusters=AWAY), size=(120, 30)) as pilot:
        await until_text(pilot, "▲ isambard stale 3m05")
        await until_text(pilot, "▲ mila needs you: a")
        rows = [row for row in screen_lines(pilot) if "stale 3m05" in row]
        assert len(rows) == 1 + sum(run.cluster == "isambard" for run in RUNS)


async def test_why_a_cluster_is_away_is_told_to_its_end_below_the_list() -> None:
    reason = "no.such.host.example.org cannot be found: no address is known for it. Look at host: in the profile."
    away = msgspec.structs.replace(AWAY[1], problem=reason)
    async with cockpit(FakeCockpit(all_clusters=(*CLUSTERS[:1], away))) as pilot:
        await press(pilot, "C", "j")
        await until_text(pilot, "✗ away")
        assert reason in " ".join(screen_text(pilot).split())
        assert any(row.rstrip().endswith("…") for row in screen_lines(pilot))


async def test_questions_open_by_a_key_only_and_answers_go_nowhere_else() -> None:
    fake = FakeCockpit(all_clusters=AWAY, questions=(CODE,))
    async with cockpit(fake) as pilot:
        await settled(pilot)
        pilot.app.controller.refresh()
        await settled(pilot)
        assert isinstance(pilot.app.screen, RunsScreen), "a background refresh never asks"
        await enter(pilot, "a")
        await until(pilot, lambda: isinstance(pilot.app.screen, DoorScreen), "the question")
        await flushed(pilot)
        await enter(pilot, "hunter2")
        await flushed(pilot)
        assert "hunter2" not in screen_text(pilot)
        await enter(pilot, "\n")
        await until_text(pilot, "Code:")
        await enter(pilot, "123456")
        await until_text(pilot, "123456")
        await enter(pilot, "\n")
        await until(pilot, lambda: ("answered", "hunter2", "123456") in fake.calls, "the answers")
        await until(pilot, lambda: "mila answers" in notices(pilot), "what came of it")
        assert "hunter2" not in notices(pilot)
        await until(pilot, lambda: not pilot.app.pictures.needs_you, "the cluster")


async def test_an_unknown_host_key_shows_its_fingerprint_and_escape_refuses() -> None:
    fake = FakeCockpit(all_clusters=AWAY, questions=(KEY,))
    async with cockpit(fake) as pilot:
        await enter(pilot, "a")
        await until(pilot, lambda: isinstance(pilot.app.screen, DoorScreen), "the question")
        await until_text(pilot, "SHA256:abcdefghijklmnop")
        assert "compare the fingerprint" in screen_text(pilot)
        await press(pilot, "escape")
        await until(pilot, lambda: "You did not answer" in notices(pilot), "the refusal")
        assert isinstance(pilot.app.screen, RunsScreen)
        assert pilot.app.pictures.needs_you == "mila"


async def test_the_list_of_clusters() -> None:
    fake = FakeCockpit(all_clusters=AWAY)
    async with cockpit(fake, size=(100, 24)) as pilot:
        await enter(pilot, "C")
        await until(pilot, lambda: isinstance(pilot.app.screen, ClustersScreen), "the list")
        await until_text(pilot, "✗ away for 3m05: login02 does not answer")
        await until_text(pilot, "▲ needs you: login.mila.quebec wants a one-time code")
        await press(pilot, "a")
        await until(pilot, lambda: "no cluster waits" in notices(pilot), "the reason")
        await press(pilot, "G", "a")
        await until(pilot, lambda: ("connect", "mila") in fake.calls, "the connection")


async def test_launch_on_a_chosen_cluster_in_four_keys_with_the_script_in_view() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await until(pilot, lambda: len(pilot.app.pictures.clusters) == 2, "the clusters")
        await enter(pilot, "nc")
        await until(pilot, lambda: isinstance(pilot.app.screen, LaunchScreen), "the launch screen")
        screen = pilot.app.screen
        await until(pilot, lambda: screen.review is not None and screen.review.cluster == "isambard", "the review")
        await until_text(pilot, "on isambard")
        await enter(pilot, "v")
        await until_text(pilot, "#SBATCH --gres=gpu:h100:3")
        await enter(pilot, "\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        assert [call for call in fake.calls if call[0] == "launch"] == [("launch", "local/grpo-tiny", "isambard")]


async def test_review_script_and_presets_are_all_in_sight_where_there_is_room() -> None:
    async with cockpit(size=(200, 60)) as pilot:
        await until(pilot, lambda: len(pilot.app.pictures.clusters) == 2, "the clusters")
        await enter(pilot, "nc")
        await until_text(pilot, "#SBATCH --gres=gpu:h100:3")
        text = screen_text(pilot)
        assert "─ layout ─" in text
        assert "─ presets ─" in text


@pytest.mark.parametrize("size", [(80, 24), (40, 10)], ids=str)
async def test_one_key_copies_what_runs_remember_against_a_node(size: tuple[int, int]) -> None:
    fake = FakeCockpit()
    async with cockpit(fake, size=size) as pilot:
        await settled(pilot)
        await enter(pilot, "je")
        await until(pilot, lambda: isinstance(pilot.app.screen, NodesScreen), "the nodes")
        await until(pilot, lambda: pilot.app.screen.pane.selected is not None, "a node")
        node = pilot.app.screen.pane.selected.id
        await enter(pilot, "y")
        await until(pilot, lambda: pilot.app.clipboard.startswith(f"Node {node} of isambard"), "the report")
        assert isinstance(pilot.app.screen, NodesScreen)
        fake.failing = {"node_report"}
        await enter(pilot, "y")
        await until(pilot, lambda: f"report {node}: isambard does not answer" in notices(pilot), "the reason")


async def test_excluding_a_node_offers_the_one_that_the_diagnosis_names_first() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, *"jjjjj", "e")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen), "the nodes")
        picker = pilot.app.screen.pane
        await until(pilot, lambda: picker.items[0].detail == "ecc_uncorrectable", "the diagnosis")
        assert [item.id for item in picker.items] == ["nid010798", "nid010701"]
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview")
        await until_text(pilot, "keeps away from nid010798")
        await enter(pilot, "y")
        await until(pilot, lambda: ("resubmit", RUNS[5].run_id, "nid010798") in fake.calls, "the resubmission")


async def test_the_picker_does_not_move_under_a_cursor_that_was_moved() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, *"jjjjj")
        await settled(pilot)
        fake.slow_s = HANG_S
        await press(pilot, "e", "j")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen), "the nodes")
        chosen = pilot.app.screen.pane.selected.id
        fake.gate.set()
        await until(pilot, lambda: pilot.app.screen.pane.items[0].detail == "ecc_uncorrectable", "the diagnosis")
        assert pilot.app.screen.pane.selected.id == chosen


async def test_lower_memory_shows_why_this_lever_and_what_changes() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, *"jjjjj", "m")
        await until_text(pilot, "shares no GPU with a learner")
        await until_text(pilot, "+ roles.rollout.memory_utilization: 0.8")
        await enter(pilot, "y")
        wanted = ("resubmit", RUNS[5].run_id, "roles.rollout.memory_utilization=0.8")
        await until(pilot, lambda: wanted in fake.calls, "the resubmission")


async def test_edits_are_previewed_errors_stand_in_the_way_and_can_be_edited_again() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, *"jjjjj", "s")
        await enter(pilot, "trian.steps=5 roles.rollout.engines=2\n")
        await until_text(pilot, "there is no key 'trian.steps'")
        await enter(pilot, "y")
        await until(pilot, lambda: "errors stand in the way" in notices(pilot), "the reason")
        await enter(pilot, "e")
        screen = pilot.app.screen
        await until(pilot, lambda: getattr(pilot.app.screen, "prompt", None) is not None, "the prompt")
        screen = pilot.app.screen
        assert screen.prompt.text == "trian.steps=5 roles.rollout.engines=2"
        await press(pilot, "ctrl+u")
        await enter(pilot, "train.steps=5\n")
        await until_text(pilot, "+ train.steps: 5")
        await enter(pilot, "y")
        await until(pilot, lambda: ("resubmit", RUNS[5].run_id, "train.steps=5") in fake.calls, "the resubmission")


async def test_the_menu_of_actions_and_the_palette_do_what_the_keys_do() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, *"jjjjj", "x")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen), "the menu")
        text = screen_text(pilot)
        assert "nothing to cancel: the run is failed already" in text
        await press(pilot, "j", "j", "enter")
        await until(pilot, lambda: "nothing to cancel" in notices(pilot), "the reason")
        await press(pilot, "j", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview of the resubmission")
        await press(pilot, "n", "x")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen), "the menu again")
        await press(pilot, "m")  # the key that a line shows works here as it does outside
        await until_text(pilot, "Lower the memory peak")
        await press(pilot, "n", "ctrl+p")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen), "the palette")
        await enter(pilot, "less memory")
        assert [item.id for item in pilot.app.screen.pane.items] == ["lower_memory"]
        await press(pilot, "enter")
        await until_text(pilot, "Lower the memory peak")


async def test_an_edited_script_is_named_where_changes_are_typed() -> None:
    asked: list[Ask] = []

    class Edits(FakeCockpit):
        def preview(self, ask: Ask) -> ActionPreview:
            asked.append(ask)
            return msgspec.structs.replace(super().preview(ask), script=ask.script)

    async with cockpit(Edits()) as pilot:
        await press(pilot, "s")
        await enter(pilot, "--script\n")
        await until(pilot, lambda: "--script needs a file" in notices(pilot), "what is wrong")
        await enter(pilot, " new.sh train.steps=7\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview")
        assert (asked[-1].script, asked[-1].overrides) == ("new.sh", ("train.steps=7",))
        await press(pilot, "e")
        await until_text(pilot, "train.steps=7 --script new.sh")


async def test_of_a_colleagues_run_the_menu_says_that_it_is_only_read() -> None:
    theirs = msgspec.structs.replace(RUNS[0], owner="bob")
    async with cockpit(FakeCockpit(all_runs=(theirs, *RUNS[1:]))) as pilot:
        await press(pilot, "c")
        await until(pilot, lambda: "this is bob's run: you may read it" in notices(pilot), "whose it is")
        await enter(pilot, f":resubmit {theirs.run_id}\n")
        await press(pilot, "x")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen), "the menu")
        lines = [line for line in screen_lines(pilot) if "bob's run" in line]
        assert any("K signal" in line for line in lines)
        assert not any("! why" in line for line in lines)


async def test_commands_reach_every_part_of_a_run() -> None:
    async with cockpit() as pilot:
        for verb, tab in (("gpus", "gpus"), ("actors", "actors"), ("logs", "logs")):
            await enter(pilot, f":{verb} {RUNS[1].run_id}\n")
            await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
            assert pilot.app.screen.tabs.current == tab
            await enter(pilot, ":queues\n")
            await until(pilot, lambda: pilot.app.screen.tabs.current == "queues", "the tab")
            await press(pilot, "q")
        await enter(pilot, ":clusters\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, ClustersScreen), "the clusters")


async def test_another_log_and_all_of_them() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, "j", "enter", "6", "o")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen), "the logs")
        await press(pilot, "j", "j", "enter")
        await until_text(pilot, "[node-nid010701.log] ")
        assert ("watch", RUNS[1].run_id, "node-nid010701.log") in fake.calls
        await press(pilot, "o", "j", "enter")
        await until_text(pilot, "─ all logs ─")
        await press(pilot, "q")
        await settled(pilot)
        fake.calls.clear()
        await press(pilot, "enter")
        await until(pilot, lambda: ("watch", RUNS[1].run_id) in fake.calls, "its own output again")


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)], ids=str)
async def test_modals_at_every_size(size: tuple[int, int]) -> None:
    async with cockpit(FakeCockpit(all_clusters=AWAY, questions=(KEY,)), size=size) as pilot:
        await until(pilot, lambda: bool(pilot.app.pictures.needs_you), "the clusters")
        await press(pilot, "a")
        await until(pilot, lambda: isinstance(pilot.app.screen, DoorScreen), "the question")
        await until_text(pilot, "Type yes")
        await press(pilot, "escape")
        await press(pilot, *"jjjjj", "m")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview")
        await until_text(pilot, "no (default)")
        await press(pilot, "G", "g", "n", "x")
        await until_text(pilot, "resubmit")
