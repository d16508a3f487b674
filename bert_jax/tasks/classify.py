"""Fine-tuning on whole texts or pairs of them: one class, several labels at once, or a number."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from bert_jax import metrics
from bert_jax.data.examples import cells
from bert_jax.data.examples.arrange import Piece, Target
from bert_jax.data.examples.columns import known_labels
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example, Kind, check_labels, label_names, labels_of
from bert_jax.data.examples.texts import read_texts
from bert_jax.errors import BertJaxError
from bert_jax.losses import Loss, binary_cross_entropy, cross_entropy, squared_error, weigh
from bert_jax.tasks.finetune import (
    FinetuneConfig,
    Finetuning,
    headed,
    in_epochs,
    in_windows,
    parted,
    say,
    tokenizer_of,
)
from bert_jax.tasks.inspect import report

PROBLEMS = {
    "classes": "single_label_classification",
    "labels": "multi_label_classification",
    "number": "regression",
}
BEST = {"classes": "accuracy", "labels": "f1_micro", "number": "spearman"}


@dataclass(frozen=True)
class Config(FinetuneConfig):
    kind: Kind = "classes"  # of a text: one class, several labels at once, or a number
    labels: tuple[str, ...] = ()  # in the order of the model's outputs; (): those of the data
    class_weights: Literal["none", "balanced"] = "none"  # balanced: each class weighs the same in all
    label_smoothing: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.kind != "classes" and (self.class_weights != "none" or self.label_smoothing):
            raise BertJaxError(
                f"class_weights and label_smoothing are for one class a text, not for kind={self.kind}"
            )


def open(config: Config) -> tuple["Classification", Epochs, Config]:
    def read(spec, columns, most):
        return read_texts(spec, columns, config.kind, most)

    parts = parted(config, read, calibrates=config.kind != "number")
    train, heldout = parts.train, parts.heldout
    known = config.labels or known_labels(config.data.train, config.data.columns)
    names = label_names(train, config.kind, known)
    check_labels(train, names, config.kind)
    if config.kind == "labels" and (
        joined := next((name for name in names if len(cells.taken_apart(name)) > 1), None)
    ):
        say(
            f'the label "{joined}" may be several; what stands between them is told by '
            f"--config.data.columns.separator, now {config.data.columns.separator!r}"
        )
    check_labels([*heldout, *parts.calibration], names, config.kind)
    tokenizer = tokenizer_of(config)
    layout = headed(config, "classify", names or ("LABEL_0",), problem_type=PROBLEMS[config.kind])
    weights = balanced(train, names) if config.class_weights == "balanced" else ()
    task = Classification(
        layout, targets_of(config.kind, names), config.kind, config.label_smoothing, weights
    )
    pieces, held = (
        pieces_of(
            examples, names, config.kind, in_windows([e.text for e in examples], tokenizer, config.data, what)
        )
        for examples, what in ((train, "training"), (heldout, "held-out"))
    )
    judge = Judge(heldout, [piece.example for piece in held], names, config.kind)
    return in_epochs(config, task, pieces, held, judge, tokenizer, parts)


def inspect(config: Config, step: int, rows: int) -> str:
    task, data, _ = open(config)
    return report(task, data, step, rows)


def targets_of(kind: Kind, names: Sequence[str]) -> dict[str, Target]:
    labels = {
        "classes": Target("int32"),
        "labels": Target("float32", (len(names),)),
        "number": Target("float32"),
    }
    return {"labels": labels[kind], "weight": Target("float32")}


def pieces_of(examples: Sequence[Example], names: Sequence[str], kind: Kind, windows) -> list[Piece]:
    """Each window has its example's label, and all windows of an example weigh as one."""
    number = {name: i for i, name in enumerate(names)}
    pieces = []
    for i, (example, found) in enumerate(zip(examples, windows, strict=True)):
        label: Any = example.label
        if kind != "number":
            places = [number[name] for name in labels_of(example)]
            label = np.isin(np.arange(len(names)), places) if kind == "labels" else places[0]
        targets = {"labels": label, "weight": 1 / len(found)}
        pieces += [Piece(window, i, targets) for window in found]
    return pieces


def balanced(examples: Sequence[Example], names: Sequence[str]) -> tuple[float, ...]:
    counts = [sum(example.label == name for example in examples) for name in names]
    return tuple(len(examples) / (len(names) * max(count, 1)) for count in counts)


@dataclass(frozen=True)
class Classification(Finetuning):
    kind: Kind = "classes"
    smoothing: float = 0.0
    class_weights: tuple[float, ...] = field(default=())

    @property
    def best(self) -> str:
        return BEST[self.kind]

    def learnt(self, piece: Piece) -> tuple[str, dict[int, str]]:
        label = piece.targets["labels"]
        if self.kind == "number":
            return f"{label:g}", {}
        names = self.layout.labels
        return names[label] if self.kind == "classes" else " ".join(np.array(names)[label]) or "none", {}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        logits, labels, weight = outputs["classify"], batch["labels"], batch["weight"]
        if self.class_weights:
            weight = weight * jnp.asarray(self.class_weights)[labels]
        if self.kind == "classes":
            loss = cross_entropy(logits, labels, weight, self.smoothing)
        elif self.kind == "labels":
            loss = binary_cross_entropy(logits, labels, weight)
        else:
            loss = squared_error(logits[..., 0], labels, weight)
        return {"classify_loss": loss}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        if self.kind != "classes":
            return {}
        right = outputs["classify"].argmax(-1) == batch["labels"]
        return {"accuracy": weigh(right.astype(jnp.float32), batch["weight"])}

    def predictions(self, outputs: dict, batch: dict):
        return outputs["classify"]


@dataclass(frozen=True)
class Judge:
    """Logits of the held-out pieces -> metrics of the examples they are windows of."""

    examples: Sequence[Example]
    owners: Sequence[int]  # of the pieces
    names: Sequence[str]
    kind: Kind

    def __call__(self, logits: list) -> dict[str, float]:
        windows: dict[int, list] = {}
        for owner, found in zip(self.owners, logits, strict=True):
            if found is not None:  # what was not computed, because only a part of the held-out was
                windows.setdefault(owner, []).append(found)
        truth = [self.examples[i].label for i in windows]
        means = np.array([np.mean(found, axis=0) for found in windows.values()])
        return judged(means, truth, self.names, self.kind)


def judged(logits: np.ndarray, truth: Sequence, names: Sequence[str], kind: Kind) -> dict[str, float]:
    if kind == "number":
        return metrics.numbers(logits[:, 0].tolist(), truth)
    if kind == "labels":
        return metrics.several(
            [{names[i] for i in np.flatnonzero(row > 0).tolist()} for row in logits],
            [set(each) for each in truth],
            names,
        )
    return metrics.classes([names[i] for i in logits.argmax(-1).tolist()], truth, names)
