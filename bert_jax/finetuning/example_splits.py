"""Divide labelled examples into those for training, for validation and for calibration."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example, ExampleSplits
from bert_jax.data.examples.split import assign_folds, document_keys, train_validation_split
from bert_jax.finetuning.finetune_config import ExamplesConfig, FinetuneConfig
from bert_jax.predictions.decoder import Decoder
from bert_jax.training.processes import print_notice

E = TypeVar("E", bound=Example)
Reader = Callable[..., list[Example]]  # (file, columns, most) -> its examples, like ExampleReader.read

# With FOLDS_BELOW examples or more a split loses little, and folds would take long (a 6-layer MiniLM).
DEFAULT_FOLDS, FOLDS_BELOW = 5, 2_000
MIN_CALIBRATION_EXAMPLES = 25  # that a calibration needs
SPLIT_KEYS = ("validation_ratio", "calibration_ratio")


def split_examples(config: FinetuneConfig, read: Reader | None = None) -> ExampleSplits:
    """Divide the labelled examples, which `read` reads; by default the reader of the config's kind of prediction."""
    # The parts do not depend on the run's seed: runs that differ only by their seed are judged on the same examples.
    data, kind = config.data, config.prediction_kind
    columns, read = data.columns, read or kind.reader.read
    train = read(data.train, columns, data.max_examples)
    count = default_num_folds(config, train) if data.folds < 0 else data.folds
    if count and jax.process_count() > 1:
        raise BertJaxError(f"data.folds={count} is for one process; set --config.data.folds=0")
    if count and data.fold_index < 0:
        return ExampleSplits(train, read(data.validation, columns) if data.validation else [], [], count)
    if count:
        numbered = list(zip(train, assign_folds(train, count), strict=True))
        kept = [example for example, fold in numbered if fold != data.fold_index]
        return ExampleSplits(
            kept, [example for example, fold in numbered if fold == data.fold_index], [], count
        )
    if data.validation:
        validation = read(data.validation, columns)
    else:
        train, validation = train_validation_split(train, data.validation_ratio)
    if kind.decoder_class.calibrate is Decoder.calibrate or not data.calibration_ratio:
        return ExampleSplits(train, validation, [])
    train, calibration = set_aside_calibration(train, data.calibration_ratio)
    return ExampleSplits(train, validation, calibration)


def set_aside_calibration(train: list[E], share: float) -> tuple[list[E], list[E]]:
    """Return the examples to train on and those for calibration; if these would be too few, keep none, and say so."""
    documents = len(set(document_keys(train)))
    if suffices_for_calibration(share, documents, len(train)):
        return train_validation_split(train, share)
    wanted = next(
        (n / 100 for n in range(1, 51) if suffices_for_calibration(n / 100, documents, len(train))), None
    )
    advice = f"Set --config.data.calibration_ratio={wanted:g}" if wanted else "Label more texts"
    print_notice(
        f"probabilities stay uncalibrated: calibration needs {MIN_CALIBRATION_EXAMPLES} examples of at least two "
        f"documents, and {share:.0%} of {len(train):,} is not enough. {advice} to calibrate them"
    )
    return train, []


def default_num_folds(config: FinetuneConfig, train: Sequence[Example]) -> int:
    """Return the number of folds for these examples, if the config leaves it to the data."""
    # A user who sets one of these keys wants a validation or calibration set instead of folds.
    wants_split = config.patience or config.checkpoints.best_metric
    wants_split = wants_split or any(
        getattr(config.data, key) != getattr(ExamplesConfig, key) for key in SPLIT_KEYS
    )
    is_few = len(train) < FOLDS_BELOW and len(set(document_keys(train))) >= DEFAULT_FOLDS
    return DEFAULT_FOLDS if is_few and not wants_split and jax.process_count() == 1 else 0


def suffices_for_calibration(share: float, documents: int, examples: int) -> bool:
    """Whether that share of the documents holds enough examples for calibration, if all documents are of one size.

    Two documents are the minimum: what is fitted to one is measured on another.
    """
    kept = round(documents * share)
    return kept > 1 and kept * examples >= MIN_CALIBRATION_EXAMPLES * documents
