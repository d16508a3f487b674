"""Which of the labelled examples a fine-tuning learns from, and which judge or calibrate it."""

from collections.abc import Callable
from typing import TypeVar

import jax

from bert_jax import terminal
from bert_jax.data.examples.example import Example, Parts
from bert_jax.data.examples.split import document_of, folds, split
from bert_jax.errors import BertJaxError
from bert_jax.predictions.kind import Kind
from bert_jax.tasks.finetune_config import ExamplesConfig, FinetuneConfig

E = TypeVar("E", bound=Example)
Reader = Callable[..., list[Example]]  # (file, columns, most) -> its examples, as Kind.read

FOLDS = 5
SHARES = ("heldout_share", "calibration_share")
MANY = 2_000  # examples from which on a split costs little, and folds would cost much
FEWEST = 25  # examples that a calibration is learnt from


def split_parts(config: FinetuneConfig, read: Reader | None = None) -> Parts:
    """Of the labelled examples, or of those that `read` gives."""
    # The parts are those of the data, whatever the run's seed: runs that differ by it are judged by the same.
    data, kind = config.data, config.predicts
    columns, read = data.columns, read or kind.read
    train = read(data.train, columns, data.most)
    count = default_folds(config, len(train)) if data.folds < 0 else data.folds
    if count and jax.process_count() > 1:
        raise BertJaxError(f"data.folds={count} is for one process; set --config.data.folds=0")
    if count and data.fold < 0:
        return Parts(train, read(data.heldout, columns) if data.heldout else [], [], count)
    if count:
        numbered = list(zip(train, folds(train, count), strict=True))
        kept = [example for example, fold in numbered if fold != data.fold]
        return Parts(kept, [example for example, fold in numbered if fold == data.fold], [], count)
    if data.heldout:
        heldout = read(data.heldout, columns)
    else:
        train, heldout = split(train, data.heldout_share)
    if kind.calibrate is Kind.calibrate or not data.calibration_share:
        return Parts(train, heldout, [])
    train, calibration = kept_for_calibration(train, data.calibration_share)
    return Parts(train, heldout, calibration)


def kept_for_calibration(train: list[E], share: float) -> tuple[list[E], list[E]]:
    """(to train on, kept): none where a share of them would be too few, which is said."""
    documents = len({document_of(example) for example in train})
    if enough(share, documents, len(train)):
        return split(train, share)
    wanted = next((n / 100 for n in range(1, 51) if enough(n / 100, documents, len(train))), None)
    advice = f"Set --config.data.calibration_share={wanted:g}" if wanted else "Label more texts"
    say(
        f"{share:.0%} of {len(train):,} examples are too few for calibration, which needs {FEWEST}, of at least two "
        f"documents; probabilities stay uncalibrated. {advice} to calibrate them"
    )
    return train, []


def default_folds(config: FinetuneConfig, examples: int) -> int:
    """Into how many parts so many examples are divided, if the config leaves it to the data."""
    # Who gives one of these keys wants a part held out.
    asked = config.patience or config.checkpoints.best
    asked = asked or any(getattr(config.data, key) != getattr(ExamplesConfig, key) for key in SHARES)
    return FOLDS if not asked and 2 * FOLDS <= examples < MANY and jax.process_count() == 1 else 0


def enough(share: float, documents: int, examples: int) -> bool:
    """Whether that share of the documents holds enough examples for a calibration, if all are of one size.

    Of two documents or more: what is fitted to one is measured on another.
    """
    kept = round(documents * share)
    return kept > 1 and kept * examples >= FEWEST * documents


def say(text: str) -> None:
    if jax.process_index() == 0:
        terminal.say(text)
