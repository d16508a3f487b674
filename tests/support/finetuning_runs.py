"""Fine-tunings on a small scale."""

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
