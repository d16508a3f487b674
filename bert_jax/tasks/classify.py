"""Fine-tuning on texts or pairs of texts: one class, several labels at once, a number, or a kind of your own."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bert_jax.core.config import Range, Registered
from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.finetune_config import FinetuneConfig
from bert_jax.finetuning.finetune_data import open_data
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.predictions.kind import KINDS, Kind

# Hugging Face's problem_type -> the kind of prediction.
PROBLEM_TYPES = {
    "single_label_classification": "classes",
    "multi_label_classification": "labels",
    "regression": "number",
}


@dataclass(frozen=True)
class Config(FinetuneConfig):
    # what is predicted for a text: one class, several labels, or a number, by their names in config.json (single_label
    # and multi_label also do), or a kind of prediction of your own
    problem_type: Annotated[str, Registered(lambda: list(PROBLEM_TYPES))] = "single_label_classification"
    labels: tuple[str, ...] = ()  # labels in the order of the model's outputs; (): the labels in the data
    # weights of classes in the loss; balanced: all classes count the same, however rare
    class_weights: Literal["none", "balanced"] = "none"
    # share of the target probability that is spread over all classes
    label_smoothing: Annotated[float, Range(0, 1, exclusive_maximum=True)] = 0.0

    def __post_init__(self):
        super().__post_init__()
        one_label = self.prediction_kind.targets_class.one_label
        if not one_label and (self.class_weights != "none" or self.label_smoothing):
            raise BertJaxError(
                "class_weights and label_smoothing are for one class per text, not for "
                f"problem_type={self.problem_type}"
            )

    @property
    def prediction_kind(self) -> type[Kind]:
        return kind_of_problem(self.problem_type)


def kind_of_problem(problem_type: str) -> type[Kind]:
    """Return the kind of prediction for a Hugging Face problem_type, which may lack its ending, or for a kind's name.

    >>> kind_of_problem("multi_label").name, kind_of_problem("regression").name
    ('labels', 'number')
    """
    if name := PROBLEM_TYPES.get(problem_type) or PROBLEM_TYPES.get(f"{problem_type}_classification"):
        return KINDS[name]
    is_own = problem_type in KINDS.names() or "." in problem_type
    if not is_own or problem_type in PROBLEM_TYPES.values():
        raise BertJaxError(f'no problem_type "{problem_type}"; {suggest_name(problem_type, PROBLEM_TYPES)}')
    return KINDS[problem_type]


def open(config: Config, directories: ModelDirectories) -> tuple[FinetuneTask, Epochs, Config]:
    balanced = config.class_weights == "balanced"
    return open_data(config, directories[config.init], config.labels, config.label_smoothing, balanced)
