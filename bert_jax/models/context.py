"""The inputs that all layers of an encoder share, besides parameters and hidden states."""

from dataclasses import replace
from typing import Any

import flax.struct


@flax.struct.dataclass
class Context:
    attention_mask: Any  # [B, L], 1 on real tokens
    segment_ids: Any = None  # [B, L], the number 1..P of the sequence in a packed row, 0 on padding
    rows: Any = None  # [B], the index of each row in the whole batch of a step, which seeds dropout
    relative: Any = None  # RelativeTerms, what distances add to attention scores
    rotary: Any = None  # [S, 2, L, K / 2], rotary tables for each sort of layer, see rotary.py
    convolved: Any = None  # Convolved, which is added to the output of the first layer

    @classmethod
    def from_batch(cls, batch, rotary=None) -> "Context":
        return cls(batch["attention_mask"], batch.get("segment_ids"), batch.get("rows"), rotary=rotary)

    @property
    def kernel_context(self) -> "Context":
        """The part of the context that an attention kernel reads."""
        terms = self.relative and replace(self.relative, states=None)
        return Context(self.attention_mask, self.segment_ids, self.rows, terms)
