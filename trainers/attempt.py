"""From a command line to a trained model: what every algorithm's ``python -m trainers.…`` does around its loop."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import structs

from rltui.layout.grading import SERVED_REWARDS
from rltui.layout.load import load_layout
from rltui.layout.schema import Layout
from rltui.onnode import rundir
from rltui.onnode.checkpoints import newest_checkpoint
from trainers.data.codec import Codec, check_same_tokens
from trainers.data.images import check_same_images
from trainers.data.models import model_names, resolve_model
from trainers.full_disk import unless_full
from trainers.loop import Loop
from trainers.resuming import check_fits, restore
from trainers.roles.calls import Role
from trainers.roles.card import importing
from trainers.roles.fleet import Fleet
from trainers.session import Session
from trainers.stopping import EXIT_CODE, Stop, StopRequestedError

log = logging.getLogger("trainers")


def train(session: Session, make_loop: Callable[[Session, Fleet, Codec], Loop]) -> bool:
    """Bring up the roles of the session's layout, train, and end them; returns whether all steps are done."""
    layout, stages, stop = session.layout, session.stages, session.stop
    stages.show("placing", "asking Ray for the bundles", step=check_fits(session))
    fleet = Fleet(layout, stop.check, session.event)
    try:
        fleet.reserve()
        model_paths = _prepare_models(session)
        fleet.start(model_paths)
        threading.Thread(target=_import_torch, daemon=True).start()
        session.event("roles", "; ".join(role.title for role in fleet.roles), roles=fleet.map())
        _load(fleet, session)
        loop = make_loop(session, fleet, Codec(model_paths["learner"], session.layout.train.stop))
        resume(loop)
        log.info("training from step %d to %d", loop.state.step + 1, layout.train.steps)
        stages.show("training", step=loop.state.step)
        return run_steps(loop)
    finally:
        fleet.close()


def resume(loop: Loop) -> None:
    """Go back to the newest checkpoint, where there is one, and bring the engines to the learners' weights."""
    loop.weights.open()
    found = loop.saver.checkpoints.newest()
    if found is not None:
        path, saved = found
        loop.state = restore(path, saved, loop.state, loop.session, loop.fleet)
        loop.lookahead.resume(saved.cursor, saved.ahead, saved.prompts_per_step)
        loop.curriculum.resume(saved.first_needed, saved.curriculum)
        loop.session.event("checkpoint", f"resumed from step {saved.step}", step=saved.step, path=str(path))
        log.info("resumed from %s", path)
    loop.weights.send(loop.state.weight_version)
    loop.fleet.engine_sleep.take_waking_s()  # of a start, and of no step


def run_steps(loop: Loop) -> bool:
    """Train until all steps are done or a stop is requested, and save; returns whether all steps are done."""
    last_step, stop = loop.layout.train.steps, loop.session.stop
    with closing(loop):
        if (found := loop.evaluations.of_beginning(loop.state.step)) is not None:
            loop.reporter.note(loop.state.step, found)
        while loop.state.step < last_step and not stop.requested:
            loop.meter.begin()
            try:
                metrics = loop.step()
            except StopRequestedError:
                break  # a long generation was given up: what counts is the state after the last whole step
            loop.state = structs.replace(loop.state, ahead=loop.lookahead.starts)
            loop.state = structs.replace(loop.state, curriculum=loop.curriculum.state(loop.state.first_needed))
            metrics |= loop.curriculum.measures() | loop.evaluations.after(loop.state.step) | loop.reward.measures()
            metrics |= loop.saver.save_if_due(loop.state)
            loop.reporter.report(loop.state, metrics, loop.memory_gib)
        loop.saver.save(loop.state)  # first of all: rewards under way may take longer to end than a stop allows
    loop.reporter.close()
    return loop.state.step >= last_step


def _prepare_models(session: Session) -> dict[str, str]:
    """The folder of each kind of role's model; some may have to be made or downloaded first."""

    def on_progress(words: str, _: float) -> None:
        session.stop.check()
        session.stages.show("loading", words)

    # no share is told, as models mostly are there already: that of the stage counts roles
    session.stages.show("loading", "making the models ready")
    names = model_names(session.layout)
    paths = {kind: resolve_model(name, session.layout, on_progress) for kind, name in names.items()}
    session.stop.check()
    for kind, path in paths.items():
        if kind in SERVED_REWARDS:
            continue  # it is told texts, and has tokens of its own
        check_same_tokens(paths["learner"], path, kind)
        if session.layout.lengths.images:
            check_same_images(paths["learner"], path, kind)
    return paths


def _import_torch() -> None:
    """Import torch in this process while the roles, which take longer, load their models."""
    with importing():
        import torch  # noqa: F401


def _load(fleet: Fleet, session: Session) -> None:
    """Load all roles, showing which of them are ready."""
    states = {role.name: "loading" for role in fleet.roles}

    def on_ready(role: Role) -> None:
        states[role.name] = "ready"
        ready = sum(state == "ready" for state in states.values())
        session.stages.show("loading", f"{ready}/{len(states)} roles", roles=dict(states), progress=ready / len(states))

    session.stages.show("loading", f"0/{len(states)} roles", roles=dict(states), progress=0.0)
    fleet.load(on_ready)
    session.stages.flush()


def connect(stop: Stop) -> None:
    """Connect to the Ray of ``RAY_ADDRESS``.

    Raises:
        RuntimeError: The variable is not set.
        ConnectionError: Nothing answers there.
    """
    import ray

    address = os.environ.get("RAY_ADDRESS")
    if not address:
        raise RuntimeError("RAY_ADDRESS is not set: the trainer joins the Ray of its attempt and starts none itself")
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except SystemExit as signalled:  # Ray's own answer to SIGTERM while it connects
        raise StopRequestedError from signalled
    stop.install()


def run_attempt(attempt: Path, algorithm: str, make_loop: Callable[[Session, Fleet, Codec], Loop]) -> int:
    """Run the attempt to its end and return its exit code: 0 all steps done, 1 failed, 143 stopped by signal."""
    import ray

    stop = Stop()
    stop.install()
    session, code = None, 1
    try:
        layout = _load_layout(attempt / rundir.LAYOUT, algorithm)
        session = Session(attempt, layout, stop)
        connect(stop)
        code = 0 if train(session, make_loop) else EXIT_CODE
        if code == 0 and layout.exports:
            _publish(session)
    except StopRequestedError:
        code = EXIT_CODE
    except Exception as error:  # the outermost edge: every failure becomes an event and an exit code
        log.exception("the attempt failed")
        with unless_full():  # the log has it
            rundir.log_event(str(attempt), "error", str(error) or type(error).__name__)
    finally:
        if session is not None:
            session.close(code)
        ray.shutdown()
    return code


def _publish(session: Session) -> None:
    """Write the last checkpoint as a Hugging Face folder, and send it where the layout says."""
    layout, model = session.layout, _export(session)
    if model is None:
        return
    if layout.tracking.artifact:
        session.tracker.send_model(model)
    if layout.checkpoint.push_to_hub:
        from trainers.publishing import push

        session.stages.show("saving", f"pushing the model to {layout.checkpoint.push_to_hub}")
        text = push(model, layout.checkpoint, session.run.name, layout.deadlines.push_s)
        session.event("export", text)
        log.info(text)


def _export(session: Session) -> Path | None:
    """The last checkpoint as a Hugging Face folder; that it cannot be is told, but the run has done its steps."""
    from trainers.export import export

    found = newest_checkpoint(str(session.run))
    assert found is not None
    checkpoint = Path(found)
    target = session.run / rundir.EXPORT / checkpoint.name
    if target.exists():
        return target
    try:
        session.stages.show("saving", "exporting the model")
        session.event("export", f"the model is in {export(checkpoint, target)}")
        return target
    except (OSError, ValueError) as error:
        log.exception("the model was not exported")
        session.event("export", f"the model was not exported: {error}")
        return None


def _load_layout(path: Path, algorithm: str) -> Layout:
    layout = load_layout(path).layout
    if layout.algorithm != algorithm:
        raise ValueError(f"{path} is for {layout.algorithm}: python -m trainers.{layout.algorithm} trains it")
    return layout


def main(
    algorithm: str, make_loop: Callable[[Session, Fleet, Codec], Loop], arguments: Sequence[str] | None = None
) -> int:
    """Entry point of ``python -m trainers.ALGORITHM``; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m trainers.{algorithm}", description=f"Train with {algorithm.upper()} on Ray."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--attempt", type=Path, metavar="DIR", help="run the attempt in DIR (needs RAY_ADDRESS)")
    what.add_argument("--dry-run", type=Path, metavar="LAYOUT", help="print placement, batches and memory of LAYOUT")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes of LAYOUT")
    options = parser.parse_args(arguments)
    if options.dry_run is not None:
        from trainers.dry_run import dry_run  # needs rooms of rltui that are not sent to nodes

        print("\n".join(dry_run(load_layout(options.dry_run, options.overrides).layout)))
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stdout)
    log.setLevel(logging.INFO)
    find_own_code(options.attempt)
    return run_attempt(options.attempt, algorithm, make_loop)


def find_own_code(attempt: Path) -> None:
    """Let this process and all that it starts import the user's Python that came with the attempt."""
    archive = (attempt / rundir.OWN_CODE).absolute()
    if archive.is_file():
        paths = [os.environ.get("PYTHONPATH"), str(archive)]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        sys.path.append(str(archive))
