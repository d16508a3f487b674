"""What all layers of an encoder share, apart from parameters."""

from typing import Any

import flax.struct


@flax.struct.dataclass
class Context:
    mask: Any  # [B, L], 1 on real tokens
    packs: Any = None  # [B, L], 1..P inside each sequence of a shared row and 0 on padding
    rows: Any = None  # [B], where each row stands in the whole batch of a step: dropout follows it

    @classmethod
    def of(cls, batch) -> "Context":
        return cls(batch["mask"], batch.get("packs"), batch.get("rows"))
