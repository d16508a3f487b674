"""Fine-tunings on a small scale."""

import shutil
from pathlib import Path

from bert_jax.command import train as run
from bert_jax.training.log import read_metrics


def finetune(task: str, model, workdir, **changes):
    """A run of a recipe in configs/ on a small scale; gives the metrics of its last evaluation."""
    values = {
        "init": model, "epochs": 6, "optimizer.learning_rate": 3e-3, "data.max_length": 32, "data.batch_size": 8,
        "model.hidden_dropout_prob": 0, "model.attention_probs_dropout_prob": 0, "log.every": 5,
        "data.batching": "padded", "report": False,
        "data.folds": 0, "head_init": "pretrained",
    } | changes  # fmt: skip
    run.start_training(
        f"configs/{task}.py", [f"{key}={value}" for key, value in values.items()], str(workdir)
    )
    return [line for line in read_metrics(workdir / "metrics.jsonl") if line["kind"] == "validation"]


def assert_cut_off_ends_alike(task: str, model, folder: Path, weights: str, **given) -> None:
    """A run in `whole`, and one in `cut` that goes on after step 6, give the same metrics and the same file."""
    whole = finetune(task, model, folder / "whole", **given)
    shutil.copytree(folder / "whole", folder / "cut")
    for checkpoint in (folder / "cut" / "checkpoints").iterdir():
        if int(checkpoint.name) > 6:
            shutil.rmtree(checkpoint)
    shutil.rmtree(folder / "cut" / "model")
    again = finetune(task, model, folder / "cut", **given)
    assert len(whole) == 5, "the start, and each epoch"
    for line in (*whole, *again):
        del line["time"]
    assert again == whole
    one, other = ((folder / name / "model" / weights).read_bytes() for name in ("whole", "cut"))
    assert one == other
