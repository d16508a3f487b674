"""Build rows of tokens from spans of a corpus: [CLS] A [SEP] B [SEP], or packs of [CLS] ... [SEP], with padding."""

import numpy as np

from bert_jax.data.corpus.rows import concatenated_ranges
from bert_jax.text.tokenizer import Special


def assemble(tokens: np.ndarray, table: np.ndarray, special: Special, length: int, packed: bool):
    """Build the arrays for rows of a plan's table: tokens, mask and segments [B, L]; if `packed`, also packs [B, L] and
    cls_positions."""
    rows, spans = table["length"].shape
    size = table["length"].astype(np.int64)
    present = size > 0
    starts_cls = present & (packed | (np.arange(spans) == 0))
    taken = size + present + starts_cls
    begin = np.cumsum(taken, axis=1) - taken  # where each span begins in its row, with its special tokens
    end = begin + taken
    row = np.arange(rows)[:, None] * length
    out = np.full(rows * length, special.pad, np.int32)
    source, owner = concatenated_ranges(table["start"].astype(np.int64).ravel(), size.ravel())
    shift = (row + begin + starts_cls).ravel() - (np.cumsum(size.ravel()) - size.ravel())
    out[np.arange(len(source)) + shift[owner]] = tokens[source]
    out[(row + begin)[starts_cls]] = special.cls
    out[(row + end - 1)[present]] = special.sep
    place = np.arange(length)
    mask = (place < end[:, -1:]).astype(np.int32)
    batch = {"tokens": out.reshape(rows, length), "mask": mask}
    if not packed:
        return batch | {"segments": (place >= begin[:, 1:2]) * mask}
    # Count the pack beginnings up to each position. Only spans that are present count.
    packs = np.zeros((rows, length + 1), np.int32)
    np.add.at(packs, (np.nonzero(present)[0], begin[present]), 1)
    return batch | {
        "segments": np.zeros_like(mask),
        "packs": np.cumsum(packs[:, :length], axis=1, dtype=np.int32) * mask,
        "cls_positions": np.where(present, begin, 0).astype(np.int32),
    }
