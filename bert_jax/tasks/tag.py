"""Fine-tuning on words: each word gets a tag, which is trained at the word's first token."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from bert_jax.core.config import Range
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.example_splits import FOLDS_BELOW
from bert_jax.finetuning.finetune_config import ExamplesConfig, FinetuneConfig
from bert_jax.finetuning.finetune_data import open_data
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.kinds.tags import Tags


@dataclass(frozen=True)
class WordsConfig(ExamplesConfig):
    long_texts: Literal["windows"] = "windows"  # longer texts are read in windows: every word gets its tag


@dataclass(frozen=True)
class Config(FinetuneConfig):
    # One decision per word needs a higher learning rate than the middle of the published grid.
    base_learning_rate: ClassVar[float] = 5e-5
    rate_power: ClassVar[int] = 2

    # tags in the order of the model's outputs; (): the tags in the data, and those that their types imply
    labels: tuple[str, ...] = ()
    # share of the target probability that is spread over all tags
    label_smoothing: Annotated[float, Range(0, 1, exclusive_maximum=True)] = 0.0
    data: WordsConfig = field(default_factory=WordsConfig)

    @property
    def prediction_kind(self) -> type[Kind]:
        return Tags

    def default_learning_rate(self, width: int, examples: int) -> float:
        # With few sentences, which means few steps, a narrow model learns more at a higher rate: on 64 sentences of
        # CoNLL-2003, MiniLM has an F1 of .54 for names and .75 for chunks at 2e-4, and of .47 and .69 at 5e-5.
        few = examples < FOLDS_BELOW
        return super().default_learning_rate(width, examples) if few else self.base_learning_rate


def open(config: Config, directories: ModelDirectories) -> tuple[FinetuneTask, Epochs, Config]:
    return open_data(config, directories[config.init], config.labels, config.label_smoothing)
