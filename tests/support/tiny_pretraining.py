"""Training small enough for tests: a model of one or two layers on batches that are a function of their number."""

import numpy as np

from bert_jax.data.batch_source import BatchSource
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.tasks.pretrain import Config, PretrainTask
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.run_config import CheckpointConfig, LogConfig, MeshConfig, OptimizerConfig
from tests.support.made_up_language import ENTRIES
from tests.support.seeded_arrays import seeded_batch

ROW_LENGTH, TARGETS = 20, 3
VALIDATION = 1_000_000  # held-out batches are those of the two steps after it


class Batches(BatchSource):
    """Made-up rows in place of a corpus; `plant(step, batch)` may change what a step gets."""

    def __init__(self, rows: int = 32, plant=None):
        self.rows_per_step, self.plant = rows, plant
        self.tokenizer = WordPiece.from_vocabulary(ENTRIES)

    def identity(self):
        return {"rows": "made up"}

    def row_length(self, step):
        return ROW_LENGTH

    def features(self, step):
        return {name: (value.shape, value.dtype) for name, value in self.whole(0).items()}

    def whole(self, step):
        batch = seeded_batch(self.rows_per_step, ROW_LENGTH, len(ENTRIES), 2, TARGETS, seed=step)
        batch = {k: v.astype(np.float32 if k.endswith("weights") else np.int32) for k, v in batch.items()}
        batch["targets"] = 5 + batch["targets"] % 7  # so that there is something to learn
        return self.plant(step, batch) if self.plant else batch

    def share(self, batch, index, count):
        size = self.rows_per_step // count
        return {name: value[index * size : (index + 1) * size] for name, value in batch.items()}

    def batches(self, start, stop, index, count):
        for step in range(start, stop):
            yield self.share(self.whole(step), index, count)

    def validation_batches(self, length, index, count):
        for step in (1, 2):
            yield self.share(self.whole(VALIDATION + step), index, count)

    def metrics(self, predicted):
        return {}


def tiny_pretraining(steps: int = 20, layers: int = 1, **changes) -> tuple[PretrainTask, Config]:
    """Task and config; `changes` go to whichever section has a field of that name."""
    model = EncoderConfig(
        vocab_size=len(ENTRIES),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=24,
    )
    values = {
        "learning_rate": 3e-3,
        "warmup_steps": 5,
        "checkpoint_every": 5,
        "log_every": 2,
        "log_evaluate_every": 10,
    } | changes

    def section(kind, prefix=""):
        own = [name for name in values if name.removeprefix(prefix) in kind.__dataclass_fields__]
        return kind(**{name.removeprefix(prefix): values.pop(name) for name in own})

    sections = {
        "checkpoints": section(CheckpointConfig, "checkpoint_"),
        "log": section(LogConfig, "log_"),
        "optimizer": section(OptimizerConfig),
        "mesh": section(MeshConfig),
    }
    data = DataConfig(lengths=(ROW_LENGTH,), length_ratios=(1.0,), max_predictions_per_seq=TARGETS)
    config = Config(steps=steps, seed=3, model=model, data=data, **sections, **values)
    return PretrainTask.from_config(config, ModelDirectories()), config
