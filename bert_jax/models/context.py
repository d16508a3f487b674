"""What all layers of an encoder share, apart from parameters."""

from dataclasses import replace
from typing import Any

import flax.struct


@flax.struct.dataclass
class Context:
    mask: Any  # [B, L], 1 on real tokens
    packs: Any = None  # [B, L], 1..P inside each sequence of a shared row and 0 on padding
    rows: Any = None  # [B], where each row stands in the whole batch of a step: dropout follows it
    relative: Any = None  # relative.Relative, what distances add to the scores of attention
    rotary: Any = None  # [S, 2, L, K / 2], tables of rotary positions for each sort of layer
    convolved: Any = None  # convolution.Convolved, which joins the first layer

    @classmethod
    def of(cls, batch, rotary=None) -> "Context":
        return cls(batch["mask"], batch.get("packs"), batch.get("rows"), rotary=rotary)

    @property
    def of_attention(self) -> "Context":
        """What a kernel reads of it."""
        terms = self.relative and replace(self.relative, states=None)
        return Context(self.mask, self.packs, self.rows, terms)
