"""The `data` section of a pre-training config."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from bert_jax.config import Range, Share, check_ranges
from bert_jax.errors import BertJaxError

LONGEST = 1 << 16  # tokens of a row
Above = Range(0, 1e9, above=True)
Examples = Literal["next_sentence", "sentence_order", "full_sentences"]


@dataclass(frozen=True)
class DataConfig:
    """The defaults are BERT's published pre-training data."""

    corpora: tuple[str, ...] = ()  # directories that `bert-jax prepare` made, or their gs:// paths
    # how often each corpus is drawn from; (): by its tokens to the power alpha
    weights: Annotated[tuple[float, ...], Above] = ()
    # power of the tokens of a corpus; below 1 small corpora (rare languages) are seen more often, XLM-R took 0.3
    alpha: Annotated[float, Range(0, 10)] = 1.0

    batch: Annotated[int, Range(1, 1 << 20)] = 256  # rows a step, of all hosts together
    # tokens of a row, in phases that follow one another
    lengths: Annotated[tuple[int, ...], Range(8, LONGEST)] = (128, 512)
    shares: Annotated[tuple[float, ...], Above] = (
        0.9,
        0.1,
    )  # share of the steps that each of the lengths gets

    # what a row holds: two sentences that follow one another or not, two in the right order or not, or full sentences
    examples: Examples = "next_sentence"
    short: Share = 0.1  # share of the documents that are cut to a random shorter length
    packs: Annotated[int, Range(1, 1024)] = 8  # most documents in a row of full sentences

    rate: Share = 0.15  # share of the tokens of a row that the model has to predict
    # most tokens of a row that are predicted; 0: rate x length, rounded up (20 of 128, 77 of 512)
    cap: Annotated[int, Range(0, LONGEST)] = 0
    masked: Share = 0.8  # share of the predicted tokens that become [MASK]
    replaced: Share = 0.1  # share of them that become a random token; the others stay as they are
    unit: Literal["token", "word", "span"] = "token"  # what is masked: tokens, whole words, or spans of words
    longest_span: Annotated[int, Range(1, 512)] = 3  # most words of a span

    plans: Annotated[int, Range(1, 10_000)] = 10  # ways to cut the corpus into examples, used in turn
    fresh_masks: bool = True  # draws new masks in every pass; false, with 10 plans, is Google's static data

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
        """K, the targets that a row of `length` can hold."""
        # The ceiling in whole numbers of a millionth: 0.15 x 20 is 3.0000000000000004 in floats.
        return self.cap or max(1, -(-round(self.rate * 1_000_000) * length // 1_000_000))

    @property
    def packed(self) -> bool:
        return self.examples == "full_sentences"

    def features(self, rows: int, length: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of every array of a batch, known before any is made."""
        targets = self.targets(length)
        sizes: dict[str, tuple[int, ...]] = dict.fromkeys(("tokens", "segments", "mask"), (rows, length))
        sizes |= dict.fromkeys(("target_positions", "targets", "target_weight"), (rows, targets))
        if self.packed:
            sizes |= {"packs": (rows, length), "cls_positions": (rows, self.packs)}
        else:
            sizes |= {"labels": (rows,), "weight": (rows,)}
        integers, floats = np.dtype(np.int32), np.dtype(np.float32)
        return {name: (size, floats if name.endswith("weight") else integers) for name, size in sizes.items()}
