"""The interface between an objective and the training step.

An objective is what a model learns. Its features are the arrays of a batch, its losses are what the step minimises, and
its scores are for people. Losses and scores are (sum, weight) pairs: they are added up over microbatches, devices or
validation batches, and divided once, at the end.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from bert_jax.core.errors import BertJaxError
from bert_jax.data.batch_source import Features
from bert_jax.hub.layout import Layout
from bert_jax.losses.loss import Loss
from bert_jax.models.cost import layer_flops
from bert_jax.training.parameter_rules import Rules


@dataclass(frozen=True)
class Objective:
    """Models and what they learn. Equal objectives share a compiled step."""

    layout: Layout  # the layout of the main model that a finished run produces

    # (pattern, ParameterRule(...)) of parameters that parameter_rules.py does not know
    rules: ClassVar[Rules] = ()
    # Whether the losses need the whole batch, as with negatives from other rows, rather than being sums over its rows.
    # `losses` and `scores` then see all rows at once, and every output is an array of floats [B, ...].
    whole_batch: ClassVar[bool] = False

    @property
    def frozen(self) -> Rules:
        """(pattern, whether it is frozen) for every parameter; (): none is."""
        return ()

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the run's models, by their directories within `model/`; "" is the main model."""
        return {"": self.layout}

    def init(self, key) -> dict:
        """Return initial values of everything that is trained."""
        return self.layout.init(key)

    def constants(self) -> dict:
        """NumPy arrays that the outputs need and training never changes, such as a teacher's parameters."""
        return {}

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        """Compute what losses, scores and predictions are computed from; with a key, dropout is on.

        Several passes of the model may be made, with dropout of their own by `jax.random.fold_in(key, n)`."""
        return apply_model(self.layout, params, batch, key)

    def features(self, rows: int, length: int) -> Features:
        """The shape and dtype of each array of a batch, to compile without data."""
        raise missing_member(self, "features")

    def flops(self, rows: int, length: int) -> float:
        """The FLOPs of a step, forward and backward; of the layers only, because a head costs little. Without layers,
        those of one: times are estimated in proportion to them."""
        layers = max(self.layout.config.num_hidden_layers, 1)
        return 3 * layers * layer_flops(self.layout.config, rows * length, length)

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        """The losses; the step minimises the sum of their means. Weights depend on the batch, never on the outputs.

        A loss may exist only with dropout: it is trained, and the validation does not have it."""
        raise missing_member(self, "losses")

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        """What else to measure, in training and on the validation set."""
        return {}

    def predictions(self, outputs: dict, batch: dict):
        """Return an array [B, ...] to keep for the whole validation set; `BatchSource.metrics` reads it."""

    def keep_predictions(self, predictions):
        """Return what is kept in memory of a batch's predictions, given them as NumPy arrays."""
        return predictions

    def metrics_from_means(self, means: dict[str, float]) -> dict[str, float]:
        """Turn the mean losses and scores of the validation set into the metrics that people read."""
        return means


def missing_member(objective: Objective, name: str) -> BertJaxError:
    """The error for a member that an objective does not define. Saving its models needs none of these members."""
    return BertJaxError(
        f"the task {type(objective).__name__} does not define `{name}`; see training/objective.py"
    )


def apply_model(layout: Layout, params: dict, batch: dict, key=None) -> dict:
    """Return the outputs of a model of the layout; with a key, dropout is on."""
    rngs = None if key is None else {"dropout": key}
    # Any: flax returns a pair only if it is asked for changed variables, too.
    outputs: Any = layout.module.apply({"params": params}, batch, key is not None, rngs=rngs)
    return outputs
