"""The verb `export`."""

from bert_jax.command.flags import (
    flag,
    verb,
    whole_number_type,
)
from bert_jax.core.errors import BertJaxError


@verb(
    "write the model of a run's checkpoint as a Hugging Face directory",
    "bert-jax export runs/base model --step 10000",
    flag("workdir", help="directory of the run"),
    flag("directory", help="output directory"),
    flag("--step", type=whole_number_type(0), help="step of the checkpoint (default: the newest)"),
)
def export(args):
    print(
        f"the model of step {export_checkpoint(args.workdir, args.directory, args.step):,} is in {args.directory}"
    )


def export_checkpoint(path: str, directory: str, step: int | None = None) -> int:
    """Write the models of a checkpoint, by default of the newest, and return its step."""
    from bert_jax import tasks
    from bert_jax.hub import model_directory as hub
    from bert_jax.text.tokenizer_directory import open_tokenizer
    from bert_jax.training.checkpoint import Checkpoints
    from bert_jax.training.run_config import CheckpointConfig
    from bert_jax.training.workdir import Workdir, save_models

    workdir = Workdir(path)
    if workdir.read_run()["config"].get("method") == "contrastive":
        raise BertJaxError(
            f"{path} fits its head after the last step (method=contrastive), so its checkpoints have none; the model "
            f"of the finished run is {workdir.model}"
        )
    task = tasks.reopen_task(workdir.read_run()["config"]["task"], workdir.layouts())
    checkpoints = Checkpoints(workdir.checkpoints, CheckpointConfig())
    if step is None:
        steps = checkpoints.steps()
        if not steps:
            raise BertJaxError(f"{path} has no checkpoint yet; continue the run until it writes one")
        step = steps[-1]
    checkpoints.require_step(step)
    with hub.atomic_model_directory(directory) as new:
        save_models(new, task, checkpoints.read_params(step), open_tokenizer(workdir.tokenizer))
    return step
