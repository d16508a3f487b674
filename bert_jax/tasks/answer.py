"""Fine-tuning on questions: find where in a passage the answer starts and ends, or that there is none.

A passage that is too long for the model is read in windows. In a window without the answer, and if the question has no
answer, the target is [CLS], as in BERT's SQuAD runs.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from bert_jax.core.config import NonNegative, Range
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.finetune_config import ExamplesConfig, FinetuneConfig
from bert_jax.finetuning.finetune_data import open_data
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.kinds.answers import OVERLAP, Answers


@dataclass(frozen=True)
class PassagesConfig(ExamplesConfig):
    max_length: Annotated[int, Range(1, 1 << 20)] = 384
    # longer passages are read in windows: the answer may be anywhere
    long_texts: Literal["windows"] = "windows"
    overlap: NonNegative = OVERLAP


@dataclass(frozen=True)
class Config(FinetuneConfig):
    default_epochs: ClassVar[float] = 2.0

    data: PassagesConfig = field(default_factory=PassagesConfig)

    @property
    def prediction_kind(self) -> type[Kind]:
        return Answers


def open(config: Config, directories: ModelDirectories) -> tuple[FinetuneTask, Epochs, Config]:
    return open_data(config, directories[config.init])
