"""Predictions of a masked language model for [MASK]."""

from dataclasses import dataclass

import numpy as np

from bert_jax.inference.computations import MaskFillings
from bert_jax.inference.mask_predict import fill_in_passes
from bert_jax.inference.masks import encode_overlapping_windows, find_masks, replace_mask, use_mask_token
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import map_texts
from bert_jax.text.tokenizer import Encoding

MASKS_PER_ROW = 8  # per row; a text with more masks takes several rows


@dataclass(frozen=True)
class Filled:
    token: str
    score: float  # its probability at the mask
    text: str


def fill_masks(model: Runner, texts, top: int, steps: int):
    """Return the fillings of each text; see `MaskedLM.fill_mask`."""
    model.require_head(("mlm",), "fill_mask")

    def fill_together(chunk):
        for completion in fill_in_passes(model, [use_mask_token(model, text) for text in chunk], steps):
            yield Filled(" ".join(completion.words), completion.score, completion.text)

    def fill_one_by_one(chunk):
        return fill_separately(model, [use_mask_token(model, text) for text in chunk], top)

    return map_texts(texts, fill_together if steps else fill_one_by_one)


def fill_separately(model: Runner, texts: list[str], top: int) -> list:
    """Return the fillings of each mask; the other masks of the text stay unfilled."""
    masks = []
    for i, windows in enumerate(encode_overlapping_windows(model, texts)):
        masks += [(i, windows[n], position) for _, n, position in find_masks(model, texts[i], windows)]
    width = 1 if len(masks) == len(texts) else MASKS_PER_ROW
    rows: list[Encoding] = []
    columns: list[list[int]] = []  # positions of masks in each row
    slots = []  # (row, column) of each mask
    for _, window, position in masks:
        if not rows or rows[-1] is not window or len(columns[-1]) == width:
            rows.append(window)
            columns.append([])
        slots.append((len(rows) - 1, len(columns[-1])))
        columns[-1].append(position)
    positions = np.array([row + [0] * (width - len(row)) for row in columns], np.int32)
    outputs = model.run(rows, MaskFillings(top), {"target_positions": positions})
    by_text: list[list] = [[] for _ in texts]
    for (i, window, position), (row, column) in zip(masks, slots, strict=True):
        scores, ids = outputs[row]
        start, end = window.offsets[position]
        fillings = []
        for score, token in zip(scores[column], ids[column], strict=True):
            word, text = replace_mask(model, texts[i], start, end, int(token))
            fillings.append(Filled(word, float(score), text))
        by_text[i].append(fillings)
    return [fillings[0] if len(fillings) == 1 else fillings for fillings in by_text]
