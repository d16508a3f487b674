"""Turn labelled examples into the batches of a run: shuffled anew in each epoch, and arranged in rows.

The seed and N alone determine the windows of step N; their lengths determine the arrangement in rows.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_jax.core.progress import track
from bert_jax.core.terminal import pluralize
from bert_jax.data import randomness
from bert_jax.data.batch_source import BatchSource, Fact, Features
from bert_jax.data.examples.row_packing import (
    Arrangement,
    BatchConfig,
    EncodedWindow,
    Target,
    arrange,
    collate_rows,
)
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.text.tokenizer import Batch, Tokenizer

# Predictions for the validation windows, in order, None if not computed -> scores; None if there are none.
Score = Callable[[list], ScoreSums | None]


class Epochs(BatchSource):
    def __init__(
        self, train: Sequence[EncodedWindow], validation: Sequence[EncodedWindow], targets: dict[str, Target],
        tokenizer: Tokenizer,
        config: BatchConfig, evaluator: Score, each_token: bool,
    ):  # fmt: skip
        """`evaluator` gets a prediction for each validation window, or, with `each_token`, for each of its tokens."""
        self.train, self.validation, self.targets, self.tokenizer = train, validation, targets, tokenizer
        self.evaluator, self.each_token = evaluator, each_token
        self.noun, self.about = config.noun, config.about
        examples = config.examples
        sizes = np.array([len(window) for window in train])
        lengths = np.array(config.lengths or sizes)
        group_size = config.group_size
        sets = config.sets or ((len(sizes) // group_size, 1.0),)
        firsts = group_size * mix_sets(
            sets, config.steps, examples // group_size, config.seed, config.paired_classes
        )
        self.chosen = (firsts[:, :, None] + np.arange(group_size)).reshape(config.steps, examples)
        reference = shuffle_epochs(len(lengths), config.steps * examples, 0).reshape(config.steps, examples)
        self.arrangement = arrange(
            sizes[self.chosen].tolist(), config, reference_steps=lengths[reference].tolist()
        )
        self.rows_per_step = self.arrangement.rows
        # Batches of the validation set have as many rows as a training step.
        starts = range(0, len(validation), examples)
        self.validation_steps = [range(start, min(start + examples, len(validation))) for start in starts]
        validation_sizes = [[len(validation[i]) for i in step] for step in self.validation_steps]
        self.validation_arrangement = Arrangement(self.rows_per_step, 1, [], [])
        if validation_sizes:
            self.validation_arrangement = arrange(validation_sizes, config, self.rows_per_step)

    def padding(self) -> float:
        """The share of padding among the tokens computed in training."""
        computed = self.rows_per_step * sum(self.arrangement.lengths)
        real = sum(len(self.train[i]) for chosen in self.chosen for i in chosen)
        return 1 - real / computed

    @property
    def num_examples(self) -> int:
        return len(self.train)

    @property
    def has_validation(self) -> bool:
        return bool(self.validation)

    def facts(self) -> Iterator[Fact]:
        yield "data", self.about
        count, longest = len(self.train), max(map(len, self.train))
        truncated = sum(window.encoding.dropped > 0 for window in self.train)
        shortened = f"no {self.noun} is truncated"
        if truncated:
            share = f"{truncated / count:.1%}"
            shortened = f"{truncated:,} of {pluralize(count, self.noun)} to train on ({share}) are truncated"
        yield "length", f"{shortened}; the longest has {longest:,} tokens"

    def describe_examples(self) -> str:
        return pluralize(self.chosen.shape[1], self.noun)

    def describe_passes(self, steps: int, tokens: float) -> str:
        return f", which are {steps * self.chosen.shape[1] / len(self.train):,.2f} epochs"

    def identity(self) -> dict[str, str]:
        return {
            "training examples": fingerprint_examples(self.train),
            "validation examples": fingerprint_examples(self.validation),
        }

    def row_length(self, step: int) -> int:
        return self.arrangement.lengths[step]

    def features(self, step: int) -> Features:
        (batch,) = self.batches(step, step + 1, 0, 1)
        return {name: (value.shape, value.dtype) for name, value in batch.items()}

    def batches(self, start: int, stop: int, host_index: int, host_count: int) -> Iterator[Batch]:
        for step in range(start, stop):
            encoded_windows = [self.train[i] for i in self.chosen[step]]
            yield self.fill_rows(encoded_windows, self.arrangement, step, host_index, host_count)

    def validation_batches(self, length: int, host_index: int, host_count: int) -> Iterator[Batch]:
        steps = self.validation_steps
        for step, indices in enumerate(track(steps, "batches", "validation") if host_index == 0 else steps):
            encoded_windows = [self.validation[i] for i in indices]
            yield self.fill_rows(encoded_windows, self.validation_arrangement, step, host_index, host_count)

    def fill_rows(self, encoded_windows, arrangement: Arrangement, step: int, index: int, count: int):
        size, pad = arrangement.rows // count, self.tokenizer.special.pad
        rows = arrangement.steps[step][index * size : (index + 1) * size]
        return collate_rows(
            encoded_windows, rows, arrangement.lengths[step], arrangement.max_windows, pad, self.targets
        )

    def metrics(self, predicted: list[np.ndarray]) -> dict[str, float]:
        sums = self.score_sums(predicted)
        return sums.scores if sums else {}

    def score_sums(self, predicted: list[np.ndarray]) -> ScoreSums | None:
        """Score the model's outputs for the validation batches so far, per window or per token.

        `evaluator` gets None for the windows of later batches."""
        of_windows: list = [None] * len(self.validation)
        packed = self.validation_arrangement.max_windows > 1
        for step, logits in enumerate(predicted):
            for row, indices in enumerate(self.validation_arrangement.steps[step]):
                begin = 0
                for slot, i in enumerate(indices):
                    window = self.validation_steps[step][i]
                    end = begin + len(self.validation[window])
                    where = (row, slice(begin, end)) if self.each_token else (row, slot) if packed else row
                    of_windows[window] = logits[where]
                    begin = end
        return self.evaluator(of_windows)


def mix_sets(
    sets: Sequence[tuple[int, float]], steps: int, examples: int, seed: int, classes: Sequence[int] = ()
) -> np.ndarray:
    """Choose the examples of each step: [steps, examples]. All examples of a step come from one of the sets, given as
    (number of examples, share of the steps). A set continues its epochs from one of its steps to the next. With
    `classes`, the class of each example, most examples of a step stand in pairs of one class.

    >>> (mix_sets([(4, 3.0), (2, 1.0)], steps=4, examples=2, seed=0) >= 4).all(-1).tolist()
    [False, False, True, False]
    """
    turns = interleave([share for _, share in sets], steps)
    chosen, first = np.zeros((steps, examples), np.int64), 0
    for n, (size, _) in enumerate(sets):
        own = turns == n
        if own.any():
            part = classes[first : first + size]
            indices = shuffle_epochs(size, int(own.sum()) * examples, seed, part)
            chosen[own] = first + indices.reshape(-1, examples)
        first += size
    return chosen


def interleave(shares: Sequence[float], count: int) -> np.ndarray:
    """Return `count` indices into `shares`, each as often as its share of the sum, spread as evenly as possible.

    >>> interleave([3.0, 1.0], 8).tolist()
    [0, 0, 1, 0, 0, 0, 1, 0]
    """
    parts = np.asarray(shares) / sum(shares)
    # An index with T turns divides the sequence into T equal parts; its k-th turn is due in the middle of part k.
    due = [
        ((k + 0.5) / share, n) for n, share in enumerate(parts) for k in range(math.ceil(count * share) + 1)
    ]
    return np.array([n for _, n in sorted(due)[:count]], np.int64)


def shuffle_epochs(size: int, count: int, seed: int, classes: Sequence[int] = ()) -> np.ndarray:
    """Return the first `count` indices of consecutive epochs, each of them a random order of range(size), in pairs of
    one of the `classes` if they are given.

    >>> [sorted(epoch.tolist()) for epoch in shuffle_epochs(3, 6, seed=0).reshape(2, 3)]
    [[0, 1, 2], [0, 1, 2]]
    """
    keys = [randomness.random_key("epoch", seed, epoch) for epoch in range(-(-count // size))]
    orders = [np.argsort(randomness.random_bits(key, np.arange(size)), kind="stable") for key in keys]
    if len(classes):
        orders = [pair_classes(order, classes) for order in orders]
    return np.concatenate(orders)[:count]


def pair_classes(order: np.ndarray, classes: Sequence[int]) -> np.ndarray:
    """Move the second, fourth ... example of each class to the place right after the one before it.

    >>> pair_classes(np.array([0, 1, 2, 3, 4]), classes=[7, 8, 8, 7, 7]).tolist()
    [0, 3, 1, 2, 4]
    """
    waiting: dict[int, int] = {}  # class -> position of its example without a second one
    firsts = []
    for position, index in enumerate(order):
        first = waiting.pop(classes[index], None)
        if first is None:
            waiting[classes[index]] = first = position
        firsts.append(first)
    return order[np.argsort(firsts, kind="stable")]


def fingerprint_examples(encoded_windows: Sequence[EncodedWindow]) -> str:
    """Return a hash that changes if any text or label changes."""
    digest = hashlib.blake2b(digest_size=8)
    for window in encoded_windows:
        digest.update(repr(window.encoding.input_ids).encode())
        for name in sorted(window.targets):
            digest.update(np.ascontiguousarray(window.targets[name]).tobytes())
    return f"{len(encoded_windows)} pieces, {digest.hexdigest()}"
