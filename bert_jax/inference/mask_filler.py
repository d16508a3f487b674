"""Predictions of a masked language model for [MASK]."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.inference.computations import MaskFillings
from bert_jax.inference.mask_predict import fill_in_passes
from bert_jax.inference.masks import encode_overlapping_windows, find_masks, replace_mask, use_mask_token
from bert_jax.inference.pipeline import ModelInputs, TextPipeline
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import map_texts
from bert_jax.text.tokenizer import Encoding
from bert_jax.text.truncation import TruncationCounter

MASKS_PER_ROW = 8  # per row; a text with more masks takes several rows


@dataclass(frozen=True)
class Filled:
    token: str
    score: float  # its probability at the mask
    text: str
    token_id: int | None = None  # None for the tokens of several masks


def fill_masks(model: Runner, texts, top: int, steps: int):
    """Return the fillings of each text; see `MaskedLM.fill_mask`."""
    model.require_head(("mlm",), "fill_mask")

    def fill_together(chunk):
        for completion in fill_in_passes(model, [use_mask_token(model, text) for text in chunk], steps):
            yield Filled(" ".join(completion.words), completion.score, completion.text)

    return map_texts(texts, fill_together if steps else FillingPipeline(model, top))


class FillingPipeline(TextPipeline[list]):
    """Fills each mask of a text; the other masks of the text stay unfilled."""

    beside_shapes = ({"target_positions": (1,)}, {"target_positions": (MASKS_PER_ROW,)})

    def __init__(self, model: Runner, top: int):
        model.require_head(("mlm",), "fill_mask")
        super().__init__(model, MaskFillings(top), TruncationCounter(model.config.max_position_embeddings))

    def preprocess(self, texts: Sequence) -> ModelInputs:
        texts = [use_mask_token(self.model, text) for text in texts]
        masks = []
        for i, windows in enumerate(encode_overlapping_windows(self.model, texts)):
            masks += [
                (i, windows[n], position) for _, n, position in find_masks(self.model, texts[i], windows)
            ]
        width = 1 if len(masks) == len(texts) else MASKS_PER_ROW
        rows: list[Encoding] = []
        columns: list[list[int]] = []  # positions of masks in each row
        slots = []  # (text, row, column) of each mask
        for i, window, position in masks:
            if not rows or rows[-1] is not window or len(columns[-1]) == width:
                rows.append(window)
                columns.append([])
            slots.append((i, len(rows) - 1, len(columns[-1])))
            columns[-1].append(position)
        positions = np.array([row + [0] * (width - len(row)) for row in columns], np.int32)
        return ModelInputs(texts, rows, [], (slots, columns), {"target_positions": positions})

    def postprocess(self, inputs: ModelInputs, outputs: list) -> list:
        by_text: list[list] = [[] for _ in inputs.texts]
        slots, columns = inputs.parts
        for i, row, column in slots:
            start, end = inputs.rows[row].offsets[columns[row][column]]
            fillings = []
            scores, ids = outputs[row]
            for score, token in zip(scores[column], ids[column], strict=True):
                word, text = replace_mask(self.model, inputs.texts[i], start, end, int(token))
                fillings.append(Filled(word, float(score), text, int(token)))
            by_text[i].append(fillings)
        return [fillings[0] if len(fillings) == 1 else fillings for fillings in by_text]
