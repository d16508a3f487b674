"""Build rows of tokens from spans of a corpus: [CLS] A [SEP] B [SEP], or several [CLS] ... [SEP], with padding."""

import numpy as np

from bert_jax.data.corpus.full_sentences import concatenated_ranges
from bert_jax.text.tokenizer import Special


def assemble(tokens: np.ndarray, table: np.ndarray, special: Special, length: int, packed: bool):
    """Build the arrays for rows of a plan's table: input_ids, attention_mask and token_type_ids [B, L]; if
    `packed`, also segment_ids [B, L] and cls_positions."""
    rows, spans = table["length"].shape
    size = table["length"].astype(np.int64)
    present = size > 0
    starts_cls = present & (packed | (np.arange(spans) == 0))
    taken = size + present + starts_cls
    begin = np.cumsum(taken, axis=1) - taken  # where each span begins in its row, with its special tokens
    end = begin + taken
    row = np.arange(rows)[:, None] * length
    input_ids = np.full(rows * length, special.pad, np.int32)
    source, owner = concatenated_ranges(table["start"].astype(np.int64).ravel(), size.ravel())
    shift = (row + begin + starts_cls).ravel() - (np.cumsum(size.ravel()) - size.ravel())
    input_ids[np.arange(len(source)) + shift[owner]] = tokens[source]
    input_ids[(row + begin)[starts_cls]] = special.cls
    input_ids[(row + end - 1)[present]] = special.sep
    place = np.arange(length)
    attention_mask = (place < end[:, -1:]).astype(np.int32)
    batch = {"input_ids": input_ids.reshape(rows, length), "attention_mask": attention_mask}
    if not packed:
        return batch | {"token_type_ids": (place >= begin[:, 1:2]) * attention_mask}
    # Count the sequences that begin up to each position. Only spans that are present count.
    segment_ids = np.zeros((rows, length + 1), np.int32)
    np.add.at(segment_ids, (np.nonzero(present)[0], begin[present]), 1)
    return batch | {
        "token_type_ids": np.zeros_like(attention_mask),
        "segment_ids": np.cumsum(segment_ids[:, :length], axis=1, dtype=np.int32) * attention_mask,
        "cls_positions": np.where(present, begin, 0).astype(np.int32),
    }
