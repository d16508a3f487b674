"""Fine-tuning on words: a tag for each, learnt at the word's first token."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import jax.numpy as jnp
import numpy as np

from bert_jax import metrics
from bert_jax.data.examples.arrange import Piece, Target
from bert_jax.data.examples.columns import known_labels
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example, check_labels, label_names, labels_of
from bert_jax.data.examples.tags import read_tags
from bert_jax.inference.tag import OUTSIDE, tags_of
from bert_jax.losses import Loss, cross_entropy, weigh
from bert_jax.tasks.finetune import (
    ExamplesConfig,
    FinetuneConfig,
    Finetuning,
    headed,
    in_epochs,
    parted,
    tokenizer_of,
)
from bert_jax.tasks.inspect import report
from bert_jax.text.words import Windowed, encode_words

TARGETS = {"labels": Target("int32", each_token=True), "weight": Target("float32", each_token=True)}


@dataclass(frozen=True)
class WordsConfig(ExamplesConfig):
    long: Literal["windows"] = "windows"  # every word gets its tag


@dataclass(frozen=True)
class Config(FinetuneConfig):
    labels: tuple[str, ...] = ()  # in the order of the model's outputs; (): those of the data
    label_smoothing: float = 0.0
    data: WordsConfig = field(default_factory=WordsConfig)


def open(config: Config) -> tuple["Tagging", Epochs, Config]:
    parts = parted(config, read_tags)
    train, heldout = parts.train, parts.heldout
    known = config.labels or known_labels(config.data.train, config.data.columns)
    names = label_names(train, "tags", known)
    check_labels(train, names, "tags")
    check_labels([*heldout, *parts.calibration], names, "tags")
    tokenizer = tokenizer_of(config)
    task = Tagging(headed(config, "tag", names), TARGETS, config.label_smoothing)
    windows = [
        encode_words(
            tokenizer,
            [e.text for e in examples],
            max_length=config.data.max_length,
            overlap=config.data.overlap,
        )
        for examples in (train, heldout)
    ]
    pieces, held = (pieces_of(e, names, w) for e, w in zip((train, heldout), windows, strict=True))
    judge = Judge(heldout, windows[1], names)
    return in_epochs(config, task, pieces, held, judge, tokenizer, parts)


def inspect(config: Config, step: int, rows: int) -> str:
    task, data, _ = open(config)
    return report(task, data, step, rows)


def pieces_of(
    examples: Sequence[Example], names: Sequence[str], windows: list[list[Windowed]]
) -> list[Piece]:
    number = {name: i for i, name in enumerate(names)}
    pieces = []
    for i, (example, found) in enumerate(zip(examples, windows, strict=True)):
        tags = labels_of(example)
        for window in found:
            labels, weight = np.zeros((2, len(window.encoding.ids)))
            for position, word in window.words:
                labels[position], weight[position] = number[tags[word]], 1
            pieces.append(Piece(window.encoding, i, {"labels": labels, "weight": weight}))
    return pieces


@dataclass(frozen=True)
class Tagging(Finetuning):
    best = "f1"

    smoothing: float = 0.0

    def learnt(self, piece: Piece) -> tuple[str, dict[int, str]]:
        labels, weight = piece.targets["labels"], piece.targets["weight"]
        names = {place: self.layout.labels[int(labels[place])] for place in np.flatnonzero(weight).tolist()}
        return "", {place: name for place, name in names.items() if name != OUTSIDE}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return {"tag_loss": cross_entropy(outputs["tag"], batch["labels"], batch["weight"], self.smoothing)}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        right = outputs["tag"].argmax(-1) == batch["labels"]
        return {"accuracy": weigh(right.astype(jnp.float32), batch["weight"])}

    def predictions(self, outputs: dict, batch: dict):
        return outputs["tag"]


@dataclass(frozen=True)
class Judge:
    """Logits of the held-out windows -> metrics of the texts' tags."""

    examples: Sequence[Example]
    windows: list[list[Windowed]]
    names: Sequence[str]

    def __call__(self, logits: list) -> dict[str, float]:
        found, each = [], iter(logits)
        truth = []
        for example, windows in zip(self.examples, self.windows, strict=True):
            parts = [next(each) for _ in windows]
            if all(part is not None for part in parts):
                found.append(tags_of(len(example.text), windows, parts, self.names))
                truth.append(labels_of(example))
        return metrics.spans(found, truth)
