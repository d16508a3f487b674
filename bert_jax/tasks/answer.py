"""Fine-tuning on questions: where in a passage the answer starts and ends, or that it is not there.

A passage longer than the model is read in windows; in one without the answer, and where there is none at all, the
answer is [CLS], as in BERT's SQuAD runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import jax.numpy as jnp
import numpy as np

from bert_jax import metrics
from bert_jax.data.examples.arrange import Piece, Target
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example, answers_of
from bert_jax.data.examples.questions import read_questions
from bert_jax.inference.answer import LONGEST, MAY_BE_MISSING, OVERLAP, best
from bert_jax.losses import Loss, span_cross_entropy, weigh
from bert_jax.tasks.finetune import (
    ExamplesConfig,
    FinetuneConfig,
    Finetuning,
    headed,
    in_epochs,
    in_windows,
    parted,
    tokenizer_of,
)
from bert_jax.tasks.inspect import report
from bert_jax.text.tokenizer import Encoding

TARGETS = {"starts": Target("int32"), "ends": Target("int32"), "weight": Target("float32")}


@dataclass(frozen=True)
class PassagesConfig(ExamplesConfig):
    max_length: int = 384
    long: Literal["windows"] = "windows"  # the answer may be anywhere
    overlap: int = OVERLAP


@dataclass(frozen=True)
class Config(FinetuneConfig):
    data: PassagesConfig = field(default_factory=PassagesConfig)


def open(config: Config) -> tuple["Answering", Epochs, Config]:
    parts = parted(config, read_questions)
    train, heldout = parts.train, parts.heldout
    may_be_missing = any(not example.label for example in train)
    tokenizer = tokenizer_of(config)
    task = Answering(headed(config, "answer", (), **{MAY_BE_MISSING: may_be_missing}), TARGETS)
    windows = [
        in_windows([example.text for example in examples], tokenizer, config.data, what)
        for examples, what in ((train, "training"), (heldout, "held-out"))
    ]
    pieces, held = (
        [
            Piece(window, i, {**span_in(example, window), "weight": 1.0})
            for i, (example, found) in enumerate(zip(examples, each, strict=True))
            for window in found
        ]
        for examples, each in zip((train, heldout), windows, strict=True)
    )
    judge = Judge(heldout, windows[1], may_be_missing)
    return in_epochs(config, task, pieces, held, judge, tokenizer, parts)


def inspect(config: Config, step: int, rows: int) -> str:
    task, data, _ = open(config)
    return report(task, data, step, rows)


def span_in(example: Example, window: Encoding) -> dict[str, int]:
    """The first and last token of the answer, or [CLS] for both where the window does not hold all of it."""
    if answers := answers_of(example):
        start, text = answers[0]
        places = window.spans[1]
        covered = [
            p for p in places if window.offsets[p][0] < start + len(text) and window.offsets[p][1] > start
        ]
        if (
            covered
            and window.offsets[covered[0]][0] <= start
            and window.offsets[covered[-1]][1] >= start + len(text)
        ):
            return {"starts": covered[0], "ends": covered[-1]}
    return {"starts": 0, "ends": 0}


@dataclass(frozen=True)
class Answering(Finetuning):
    best = "f1"

    def learnt(self, piece: Piece) -> tuple[str, dict[int, str]]:
        start, end = piece.targets["starts"], piece.targets["ends"]
        return ("answer", dict.fromkeys(range(start, end + 1), "answer")) if end else ("no answer", {})

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        logits, mask, starts, ends = in_packs(outputs["answer"], batch)
        return {"answer_loss": span_cross_entropy(logits, starts, ends, batch["weight"], mask)}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        logits, mask, starts, ends = in_packs(outputs["answer"], batch)
        found = jnp.where(mask[..., None] > 0, logits, -jnp.inf).argmax(-2)
        right = (found[..., 0] == starts) & (found[..., 1] == ends)
        return {"span_accuracy": weigh(right.astype(jnp.float32), batch["weight"])}

    def predictions(self, outputs: dict, batch: dict):
        return outputs["answer"]


def in_packs(logits, batch: dict):
    """(logits, mask of places, starts, ends), each with an axis of packs where the rows have some."""
    if "packs" not in batch:
        return logits, batch["mask"], batch["starts"], batch["ends"]
    begins = batch["cls_positions"]
    packs = jnp.arange(begins.shape[1]) + 1
    mask = batch["packs"][:, None, :] == packs[None, :, None]  # [B, P, L]
    return logits[:, None], mask, batch["starts"] + begins, batch["ends"] + begins


@dataclass(frozen=True)
class Judge:
    """Logits of the held-out windows -> how well the questions are answered."""

    examples: Sequence[Example]
    windows: list[list[Encoding]]
    may_be_missing: bool

    def __call__(self, logits: list) -> dict[str, float]:
        found, truth, each = [], [], iter(logits)
        for example, windows in zip(self.examples, self.windows, strict=True):
            parts = [next(each) for _ in windows]
            if all(part is not None for part in parts):
                answer = best(
                    example.text[1], windows, [np.asarray(p) for p in parts], LONGEST, self.may_be_missing
                )
                found.append(answer.text if answer else "")
                truth.append([text for _, text in answers_of(example)])
        return metrics.answers(found, truth)
