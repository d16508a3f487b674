"""Fine-tuning on words: each word gets a tag, which is trained at the word's first token."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from bert_jax.core.config import Range
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.epochs_config import MAX_LEARNING_RATE
from bert_jax.finetuning.example_counts import FOLDS_BELOW
from bert_jax.finetuning.finetune_config import ExamplesConfig, FinetuneConfig
from bert_jax.finetuning.finetune_data import open_data
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.kinds.tags import Tags

# The factor of the learning rate for fewer than FOLDS_BELOW sentences, which are trained on for few steps.
FEW_SENTENCES_FACTOR = 2.0


@dataclass(frozen=True)
class WordsConfig(ExamplesConfig):
    long_texts: Literal["windows"] = "windows"  # longer texts are read in windows: every word gets its tag


@dataclass(frozen=True)
class Config(FinetuneConfig):
    # One decision per word needs a higher learning rate than the middle of the published grid.
    base_learning_rate: ClassVar[float] = 5e-5

    labels: tuple[str, ...] = ()  # tags in the order of the model's outputs; (): the tags in the data
    # share of the target probability that is spread over all tags
    label_smoothing: Annotated[float, Range(0, 1, exclusive_maximum=True)] = 0.0
    data: WordsConfig = field(default_factory=WordsConfig)

    @property
    def prediction_kind(self) -> type[Kind]:
        return Tags

    def default_learning_rate(self, width: int, examples: int) -> float:
        factor = FEW_SENTENCES_FACTOR if examples < FOLDS_BELOW else 1
        return min(super().default_learning_rate(width, examples) * factor, MAX_LEARNING_RATE)


def open(config: Config, directories: ModelDirectories) -> tuple[FinetuneTask, Epochs, Config]:
    return open_data(config, directories[config.init], config.labels, config.label_smoothing)
