"""From a config file to a run, and from a run's directory to its model."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

import jax

from bert_jax import config as configs
from bert_jax.command import sweep
from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.inference import model as api
from bert_jax.inference.outcomes import calibration_of, outcomes
from bert_jax.metrics import nothing_learnt
from bert_jax.pod.chips import peak_of
from bert_jax.predictions import calibration as calibrations
from bert_jax.report.curves import draw
from bert_jax.report.page import write
from bert_jax.tasks import load, warm_start
from bert_jax.tasks.finetune import FinetuneConfig
from bert_jax.text.directory import open_tokenizer
from bert_jax.train.checkpoint import Checkpoints
from bert_jax.train.config import CheckpointConfig, MeshConfig, RunConfig
from bert_jax.train.log import heldout
from bert_jax.train.loop import train
from bert_jax.train.sharding import make_mesh
from bert_jax.train.state import abstract_state
from bert_jax.train.step import Programs
from bert_jax.train.task import Results, Task
from bert_jax.train.workdir import Workdir, layout_of, nested


def start(spec: str, overrides: Sequence[str], workdir: str) -> bool:
    """`bert-jax train`: whether the run, or all that it stands for, came to the end."""
    _, config = load(spec, overrides)
    if not (isinstance(config, FinetuneConfig) and (config.seeds > 1 or config.sweep)):
        return one(spec, overrides, workdir)
    programs = Programs()

    def run(overrides: Sequence[str], workdir: Path) -> bool:
        return one(spec, overrides, workdir, programs, alone=False)

    found = sweep.run(spec, overrides, config, Path(workdir), run)
    if found is None:
        return False
    if jax.process_index() == 0:
        chosen = sweep.settle(Path(workdir), found)
        module, config = load(spec, chosen.overrides)
        task, _, _ = module.open(config)
        conclude(Workdir(workdir), task.results, command(spec, overrides, workdir))
    return True


def one(
    spec: str, overrides: Sequence[str], workdir, programs: Programs | None = None, alone: bool = True
) -> bool:
    """A single run; one that stands alone is drawn, calibrated and reported."""
    module, config = load(spec, overrides)
    task, data, config = module.open(config)

    def params():
        found, missing = warm_start.read(config.init, task.layout, config.seed)
        if jax.process_index() == 0:
            begun = f" with initial values for {', '.join(missing)}" if missing else ""
            print(
                f"begins from {config.init}{begun}, at step {config.first_step:,} of the schedule", flush=True
            )
        return found

    peak = peak_of(jax.devices()[0].device_kind)
    finished = train(
        task, data, config, workdir, params if config.init and not config.scratch else None, peak, programs
    )
    if alone and jax.process_index() == 0:
        draw(Workdir(workdir).metrics, Workdir(workdir).curves)
        if finished and task.results:
            measured = heldout(Workdir(workdir).metrics)
            if measured and all(map(nothing_learnt, measured)):
                advice = "try another --config.optimizer.rate, more --config.epochs, another --config.seed"
                print(f"{nothing_learnt(measured[-1])}; {advice}", flush=True)
            conclude(Workdir(workdir), task.results, command(spec, overrides, workdir))
    return finished


def conclude(workdir: Workdir, results: Results, command: str) -> None:
    calibrate(workdir.model, results)
    if results.report:
        write_run_report(workdir, results, command)


def calibrate(directory, results: Results) -> None:
    """Learns how far the model in the directory can be trusted, from examples read as `predict` will read them."""
    calibrations.save(directory, calibrations.NONE)
    if not results.calibration:
        return
    model = api.load(directory)
    calibration = calibration_of(outcomes(model, results.calibration, long=results.long))
    calibrations.save(directory, calibration)
    warmest = "" if calibration.kind == "answers" else f"temperature {max(calibration.temperatures):.3g}, "
    print(
        f"calibrated on {len(results.calibration):,} examples: {warmest}expected calibration error "
        f"{calibration.error_before:.4f} before, {calibration.error_after:.4f} after",
        flush=True,
    )


def write_run_report(workdir: Workdir, results: Results, command: str) -> None:
    """Writes the report of the model on what was held out."""
    model = api.load(workdir.model)
    given = outcomes(model, results.heldout, long=results.long)
    known = {"held out": results.heldout, "training": results.train}
    known |= {"calibration": results.calibration} if results.calibration else {}
    page = write(
        workdir.path / "report", given, model, title=f"{workdir.path} on what was held out", command=command,
        parts=known, curves=workdir.curves,
    )  # fmt: skip
    print(f"the report is {page}", flush=True)


def command(spec: str, overrides: Sequence[str], workdir: str) -> str:
    given = [f"--config.{override}" for override in overrides]
    return shlex.join(["bert-jax", "train", "--config", spec, *given, "--workdir", str(workdir)])


def inspect(spec: str, overrides: Sequence[str], step: int, rows: int) -> str:
    """`bert-jax inspect`: the examples of a step as text."""
    module, config = load(spec, overrides)
    return module.inspect(config, step, rows)


def export(path: str, directory: str, step: int | None = None) -> int:
    """`bert-jax export`: writes the model of a checkpoint, by default the newest, and returns its step."""
    workdir = Workdir(path)
    said = workdir.read()
    names = {field.name for field in dataclasses.fields(RunConfig)}
    values = {name: value for name, value in nested(said["config"]).items() if name in names}
    config = dataclasses.replace(configs.build(RunConfig, values), mesh=MeshConfig())
    checkpoints = Checkpoints(workdir.checkpoints, CheckpointConfig())
    if step is None:
        steps = checkpoints.steps()
        if not steps:
            raise BertJaxError(f"{path} has no checkpoint yet; let the run go on until one is written")
        step = steps[-1]
    checkpoints.check(step)
    layout = layout_of(said["layout"])
    mesh = make_mesh(config.mesh, jax.local_devices()[:1])
    state, _ = checkpoints.restore(step, abstract_state(Task(layout), config, mesh))
    hub.save(directory, layout, jax.device_get(state.params), open_tokenizer(workdir.tokenizer))
    return step
