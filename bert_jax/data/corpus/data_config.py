"""The `data` section of a pre-training config."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from bert_jax.core.config import Range, Share, check_ranges
from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer import ENCODER_INPUTS

LONGEST = 1 << 16  # tokens of a row
Above = Range(0, 1e9, exclusive_minimum=True)
SentenceObjective = Literal["next_sentence", "sentence_order", "none"]


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
    # share of the steps for each of the lengths
    length_ratios: Annotated[tuple[float, ...], Above] = (0.9, 0.1)

    # next_sentence: two segments, the second from another document half of the time; sentence_order: two consecutive
    # segments, swapped half of the time; none: a row full of sentences, without pairs
    sentence_objective: SentenceObjective = "next_sentence"
    short_seq_prob: Share = 0.1  # share of the documents whose pairs have a random shorter length
    # maximum number of documents in a row, for sentence_objective=none
    max_documents_per_row: Annotated[int, Range(1, 1024)] = 8

    mlm_probability: Share = 0.15  # share of a row's tokens that the model has to predict
    # maximum number of tokens to predict in a row; 0: mlm_probability x length, rounded up (20 of 128, 77 of 512)
    max_predictions_per_seq: Annotated[int, Range(0, LONGEST)] = 0
    mask_replace_prob: Share = 0.8  # share of the predicted tokens that are replaced by [MASK]
    # share of the predicted tokens that are replaced by a random token; the rest stay unchanged
    random_replace_prob: Share = 0.1
    # what is masked: tokens, whole words, or spans of words
    mask_unit: Literal["token", "word", "span"] = "token"
    max_span_length: Annotated[int, Range(1, 512)] = 3  # maximum number of words in a span

    # number of ways to cut the corpus into examples, used in turn
    dupe_factor: Annotated[int, Range(1, 10_000)] = 10
    # draw new masks in every pass; false, with a dupe_factor of 10: static masks as in Google's BERT
    dynamic_masking: bool = True

    def __post_init__(self):
        check_ranges(self, "data.")
        if len(self.lengths) != len(self.length_ratios) or not self.lengths:
            raise BertJaxError(
                f"{len(self.length_ratios)} data.length_ratios for {len(self.lengths)} data.lengths; give one for each "
                "length"
            )
        if self.weights and len(self.weights) != len(self.corpora):
            raise BertJaxError(
                f"{len(self.weights)} data.weights for {len(self.corpora)} corpora; give one weight for each corpus"
            )
        if (replaced := self.mask_replace_prob + self.random_replace_prob) > 1:
            raise BertJaxError(
                f"data.mask_replace_prob + data.random_replace_prob is {replaced:g}, more than 1"
            )

    def max_targets(self, length: int) -> int:
        """Return K, the most targets of a row of `length`."""
        # The ceiling is computed with integers, in millionths: as floats, 0.07 x 100 is 7.000000000000001.
        rate = round(self.mlm_probability * 1_000_000)
        return self.max_predictions_per_seq or max(1, -(-rate * length // 1_000_000))

    @property
    def packed(self) -> bool:
        return self.sentence_objective == "none"

    def features(self, rows: int, length: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return the shape and type of every array of a batch, without making one."""
        targets = self.max_targets(length)
        sizes: dict[str, tuple[int, ...]] = dict.fromkeys(ENCODER_INPUTS, (rows, length))
        sizes |= dict.fromkeys(("target_positions", "targets", "target_weights"), (rows, targets))
        if self.packed:
            sizes |= {"segment_ids": (rows, length), "cls_positions": (rows, self.max_documents_per_row)}
        else:
            sizes |= {"labels": (rows,), "label_weights": (rows,)}
        types = {True: np.dtype(np.float32), False: np.dtype(np.int32)}
        return {name: (size, types[name.endswith("weights")]) for name, size in sizes.items()}
