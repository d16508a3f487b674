"""What a task is to the step and the loop.

A task is a model with a purpose: its features are the arrays of a batch, its losses are what the step minimises, and
its scores what people look at. Losses and scores are (sum, weight) pairs; whoever adds up microbatches, devices or
validation batches divides once, at the end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from bert_jax.data.examples.example import Example
from bert_jax.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.losses import Loss
from bert_jax.models.cost import layer_flops
from bert_jax.predictions.calibration import Calibration
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.train.rules import Rules

Features = dict[str, tuple[tuple[int, ...], np.dtype]]


@dataclass(frozen=True)
class Results:
    """What a finished run leaves for people beside its model: the examples it is calibrated on and reported with."""

    train: Sequence[Example]
    heldout: Sequence[Example]
    calibration: Sequence[Example]  # () where none were kept
    long: Literal["cut", "windows"] = "cut"  # how texts longer than the model are read
    report: bool = True  # whether to write a report
    foreign: Sequence[Example] = ()  # without labels: what the model should refuse
    max_length: int = 0  # tokens of a text, or of a window of it, that training reads


@dataclass(frozen=True)
class Card:
    """What the README.md of a finished model tells people, in Markdown, beside what is known of any run."""

    library: str  # that opens the directory, too
    pipeline: str  # what Hugging Face calls its use
    tags: Sequence[str]
    about: Sequence[str]  # what it does, how much it reads
    usage: str  # in Python; DIR is its directory
    data: Sequence[str]  # what it learnt from
    recipe: Mapping[str, str]  # settings of this task alone: name -> value, "" where there is none
    calibrated: Callable[[Calibration], str] | None = None  # what its scores are


@dataclass(frozen=True)
class Task:
    """Tasks that are equal share a compiled step: what differs without changing it is left out of the comparison."""

    layout: Layout  # of the model that a finished run leaves
    results: Results | None = field(default=None, kw_only=True, compare=False)
    card: Card | None = field(default=None, kw_only=True, compare=False)

    rules: ClassVar[Rules] = ()  # of parameters that train/rules.py does not know: (pattern, Parameter(...))
    frozen: ClassVar[Rules] = ()  # (pattern, whether it keeps its value) for every parameter; (): none does
    # Whether the losses are of the whole batch, as with negatives from other rows, rather than sums over its rows.
    # `losses` and `scores` then see all rows at once, and every output is an array of floats [B, ...].
    whole_batch: ClassVar[bool] = False

    @property
    def best(self) -> str:
        """The validation metric by which runs of the task are compared."""
        raise self.lacking("best")

    @property
    def layouts(self) -> dict[str, Layout]:
        """The models that the run leaves, by their directories within `model/`; "" is the main one."""
        return {"": self.layout}

    def init(self, key) -> dict:
        """Initial values of everything that is trained."""
        return self.layout.init(key)

    @property
    def begins_with_data(self) -> bool:
        """Whether `begun` changes random initial values, too, not only those of a model directory."""
        return False

    def begun(self, params: dict, data: "Data", steps: int) -> dict:
        """The parameters that the steps begin with, of those of a model directory and initial values of what it
        lacks."""
        return params

    def ended(self, params: dict, data: "Data") -> dict:
        """The parameters that a finished run leaves, of those after its last step."""
        return params

    def models(self, params: dict) -> dict[str, dict]:
        """The parameters of each of `layouts`."""
        return {"": {name: params[name] for name in self.layout.module_names}}

    def of_models(self, models: dict[str, dict]) -> dict:
        """The inverse of `models`."""
        return models[""]

    def constants(self) -> dict:
        """NumPy arrays that the outputs need and nothing changes, such as a teacher's parameters."""
        return {}

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        """What losses, scores and predictions are computed from; with a key there is dropout."""
        rngs = None if key is None else {"dropout": key}
        # Any: it is a pair only where what the module changes is asked for.
        outputs: Any = self.layout.module.apply({"params": params}, batch, key is not None, rngs=rngs)
        return outputs

    def features(self, rows: int, length: int) -> Features:
        """Shape and type of each array of a batch, for compiling without data."""
        raise self.lacking("features")

    def flops(self, rows: int, length: int) -> float:
        """Of one step, forward and backward; those of the layers, for a head costs little beside them."""
        return 3 * self.layout.config.layers * layer_flops(self.layout.config, rows * length, length)

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        """The step minimises the sum of their means. A weight is a function of the batch, never of the outputs."""
        raise self.lacking("losses")

    def lacking(self, name: str) -> BertJaxError:
        """The error of a task that is asked for what it does not define; saving its models asks for none of it."""
        return BertJaxError(f"the task {type(self).__name__} does not define `{name}`; see train/task.py")

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        """What else is measured, in training and on the validation set."""
        return {}

    def predictions(self, outputs: dict, batch: dict):
        """An array [B, ...] kept for the whole validation set; `Data.metrics` reads it."""

    def usual(self, step: int) -> dict[str, tuple[float, float]]:
        """(low, high) of the training losses that such runs usually have after a step, where that is known."""
        return {}

    def summary(self, means: dict[str, float]) -> dict[str, float]:
        """The means of losses and scores over the validation set -> the metrics that people read."""
        return means


class Data(Protocol):
    """Where the batches of a run come from; batch N is a function of N."""

    tokenizer: Tokenizer
    batch: int  # rows of a step, all hosts together

    def identity(self) -> dict[str, str]:
        """What the batches depend on beside the config, by a name that people know."""

    def length(self, step: int) -> int: ...

    def features(self, step: int) -> Features:
        """Of the step's whole batch; nothing is written for it."""
        ...

    def batches(
        self, start: int, stop: int, host_index: int, host_count: int
    ) -> Iterator[dict[str, np.ndarray]]: ...

    def heldout(self, length: int, host_index: int, host_count: int) -> Iterator[dict[str, np.ndarray]]: ...

    def metrics(self, predicted: list[np.ndarray]) -> dict[str, float]:
        """From the task's predictions on the batches of `heldout`, all hosts' rows together."""
        ...
