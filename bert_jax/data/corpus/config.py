"""The `data` section of a pre-training config."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from bert_jax.core.config import Range, Share, check_ranges
from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer import ENCODER_INPUTS

LONGEST = 1 << 16  # tokens of a row
Above = Range(0, 1e9, above=True)
Examples = Literal["next_sentence", "sentence_order", "full_sentences"]


@dataclass(frozen=True)
class DataConfig:
    """The corpora of a pre-training run, and how its batches are made. The defaults are those of the BERT paper."""

    corpora: tuple[str, ...] = ()  # directories that `bert-jax prepare` made, or their gs:// paths
    # relative frequency of each corpus; (): its number of tokens to the power alpha
    weights: Annotated[tuple[float, ...], Above] = ()
    # exponent of a corpus's number of tokens; below 1, small corpora (rare languages) are seen more often; XLM-R: 0.3
    alpha: Annotated[float, Range(0, 10)] = 1.0

    batch_size: Annotated[int, Range(1, 1 << 20)] = 256  # rows per step, over all hosts
    # tokens per row, one length for each phase of the run
    lengths: Annotated[tuple[int, ...], Range(8, LONGEST)] = (128, 512)
    shares: Annotated[tuple[float, ...], Above] = (
        0.9,
        0.1,
    )  # share of the steps for each of the lengths

    # next_sentence: two segments, the second from another document half of the time; sentence_order: two consecutive
    # segments, swapped half of the time; full_sentences: a row full of sentences, without pairs
    examples: Examples = "next_sentence"
    short: Share = 0.1  # share of the documents whose pairs have a random shorter length
    packs: Annotated[int, Range(1, 1024)] = 8  # most documents in a row of full sentences

    rate: Share = 0.15  # share of a row's tokens that the model has to predict
    # most tokens to predict per row; 0: rate x length, rounded up (20 of 128, 77 of 512)
    cap: Annotated[int, Range(0, LONGEST)] = 0
    masked: Share = 0.8  # share of the predicted tokens that are replaced by [MASK]
    # share of the predicted tokens that are replaced by a random token; the rest stay unchanged
    replaced: Share = 0.1
    unit: Literal["token", "word", "span"] = "token"  # what is masked: tokens, whole words, or spans of words
    longest_span: Annotated[int, Range(1, 512)] = 3  # most words of a span

    # number of ways to cut the corpus into examples, used in turn
    plans: Annotated[int, Range(1, 10_000)] = 10
    # draw new masks in every pass; false, with 10 plans: static masks as in Google's BERT
    fresh_masks: bool = True

    def __post_init__(self):
        check_ranges(self, "data.")
        if len(self.lengths) != len(self.shares) or not self.lengths:
            raise BertJaxError(
                f"{len(self.shares)} data.shares for {len(self.lengths)} data.lengths; give one share for each length"
            )
        if self.weights and len(self.weights) != len(self.corpora):
            raise BertJaxError(
                f"{len(self.weights)} data.weights for {len(self.corpora)} corpora; give one weight for each corpus"
            )
        if self.masked + self.replaced > 1:
            raise BertJaxError(f"data.masked + data.replaced is {self.masked + self.replaced:g}, more than 1")

    def targets(self, length: int) -> int:
        """Return K, the most targets of a row of `length`."""
        # The ceiling is computed with integers, in millionths: as floats, 0.07 x 100 is 7.000000000000001.
        return self.cap or max(1, -(-round(self.rate * 1_000_000) * length // 1_000_000))

    @property
    def packed(self) -> bool:
        return self.examples == "full_sentences"

    def features(self, rows: int, length: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return the shape and type of every array of a batch, without making one."""
        targets = self.targets(length)
        sizes: dict[str, tuple[int, ...]] = dict.fromkeys(ENCODER_INPUTS, (rows, length))
        sizes |= dict.fromkeys(("target_positions", "targets", "target_weights"), (rows, targets))
        if self.packed:
            sizes |= {"segment_ids": (rows, length), "cls_positions": (rows, self.packs)}
        else:
            sizes |= {"labels": (rows,), "label_weights": (rows,)}
        types = {True: np.dtype(np.float32), False: np.dtype(np.int32)}
        return {name: (size, types[name.endswith("weights")]) for name, size in sizes.items()}
