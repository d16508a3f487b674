"""Distillations on a small scale."""

from pathlib import Path

from tests.support.finetuning_runs import finetune
from tests.support.tables import write_csv
from tests.support.texts import marked_texts
from tests.support.tiny_encoder import ENCODER_CONFIG, save_encoder


def train_teacher(root: Path) -> Path:
    """A classifier of two layers that knows w0 from w1, in run/model; begin/ is what it was before."""
    save_encoder(root / "begin", ENCODER_CONFIG.replace(layers=2))
    train = write_csv(root / "train.csv", marked_texts(160, 0))
    finetune("classify", root / "begin", root / "run", **{"data.train": train, "data.batching": "packed"})
    return root / "run/model"


def distil_settings(teacher, train, **changes):
    values = {
        "teacher": teacher, "data.train": train, "epochs": 6, "optimizer.learning_rate": 3e-3, "data.max_length": 32,
        "data.batch_size": 16, "log.every": 5, "checkpoints.every": 20, "checkpoints.keep": 9,
    } | changes  # fmt: skip
    return [f"{key}={value}" for key, value in values.items()]
