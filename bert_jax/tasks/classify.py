"""Fine-tuning on texts or pairs of texts: one class, several labels at once, a number, or a kind of your own."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bert_jax.core.config import Range, Registered
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.finetune_config import FinetuneConfig
from bert_jax.finetuning.finetune_data import open_data
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.finetuning.inspect_examples import format_examples
from bert_jax.predictions.kind import KINDS, Kind
from bert_jax.training.outline import Outline, make_outline


@dataclass(frozen=True)
class Config(FinetuneConfig):
    # what is predicted for a text: one of several classes, several labels at once, a number, or a kind of your own
    kind: Annotated[str, Registered(lambda: ("classes", "labels", "number"))] = "classes"
    labels: tuple[str, ...] = ()  # labels in the order of the model's outputs; (): the labels in the data
    # weights of classes in the loss; balanced: all classes count the same, however rare
    class_weights: Literal["none", "balanced"] = "none"
    # share of the target probability that is spread over all classes
    label_smoothing: Annotated[float, Range(0, 1, below=True)] = 0.0

    def __post_init__(self):
        super().__post_init__()
        if not self.prediction_kind.one_label and (self.class_weights != "none" or self.label_smoothing):
            raise BertJaxError(
                f"class_weights and label_smoothing are for one class per text, not for kind={self.kind}"
            )

    @property
    def prediction_kind(self) -> type[Kind]:
        return KINDS[self.kind]


def open(config: Config) -> tuple[FinetuneTask, Epochs, Config]:
    return open_data(config, config.labels, config.label_smoothing, config.class_weights == "balanced")


def outline(config: Config) -> Outline:
    return make_outline(*open(config), config.batch_size)


def inspect(config: Config, step: int, rows: int) -> str:
    task, data, _ = open(config)
    return format_examples(task, data, step, rows)
