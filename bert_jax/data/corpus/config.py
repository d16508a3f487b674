"""The `data` section of a pre-training config."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bert_jax.errors import BertJaxError

Examples = Literal["next_sentence", "sentence_order", "full_sentences"]


@dataclass(frozen=True)
class DataConfig:
    """The defaults are BERT's published pre-training data."""

    corpora: tuple[str, ...] = ()  # directories that `bert-jax prepare` made, or their gs:// paths
    weights: tuple[float, ...] = ()  # how often each is drawn from; empty: by its tokens to the power alpha
    alpha: float = 1.0  # below 1 small corpora (rare languages) are seen more often; XLM-R took 0.3

    batch: int = 256  # rows of a step, all hosts together
    lengths: tuple[int, ...] = (128, 512)  # of a row, one after the other
    shares: tuple[float, ...] = (0.9, 0.1)  # of all steps that each length gets

    examples: Examples = "next_sentence"
    short: float = 0.1  # share of documents cut to a random shorter length
    packs: int = 8  # documents in a row of full sentences at most

    rate: float = 0.15  # of a row's tokens that are targets
    cap: int = 0  # targets of a row at most; 0: rate x length, rounded up (20 at 128, 77 at 512)
    masked: float = 0.8  # of the targets become [MASK]
    replaced: float = 0.1  # become a random token; what is left stays as it is
    unit: Literal["token", "word", "span"] = "token"
    longest_span: int = 3  # words, where unit is "span"

    plans: int = 10  # ways to cut the corpus into examples, used in turn
    fresh_masks: bool = True  # False with 10 plans is Google's static data

    def __post_init__(self):
        if len(self.lengths) != len(self.shares) or not self.lengths:
            raise BertJaxError(
                f"{len(self.shares)} data.shares for {len(self.lengths)} data.lengths; give each one"
            )
        if self.weights and len(self.weights) != len(self.corpora):
            raise BertJaxError(
                f"{len(self.weights)} data.weights for {len(self.corpora)} corpora; give each one"
            )
        if min(self.weights, default=1) <= 0 or min(self.shares) <= 0:
            raise BertJaxError("data.weights and data.shares must be above 0; leave unused ones out")
        for name in ("short", "rate", "masked", "replaced"):
            if not 0 <= getattr(self, name) <= 1:
                raise BertJaxError(f"data.{name} must be between 0 and 1, not {getattr(self, name)}")
        if self.masked + self.replaced > 1:
            raise BertJaxError(f"data.masked + data.replaced is {self.masked + self.replaced:g}, more than 1")
        for name in ("batch", "packs", "longest_span", "plans"):
            if getattr(self, name) < 1:
                raise BertJaxError(f"data.{name} must be 1 or more, not {getattr(self, name)}")
        if min(self.lengths) < 8:
            raise BertJaxError(f"data.lengths must be 8 or more, not {min(self.lengths)}")
        if self.cap < 0:
            raise BertJaxError(f"data.cap must be 0 or more, not {self.cap}")

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
