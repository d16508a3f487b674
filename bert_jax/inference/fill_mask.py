"""What the masked language model puts in the place of [MASK]."""

from dataclasses import dataclass

import numpy as np

from bert_jax.config import Range, check_number
from bert_jax.errors import BertJaxError
from bert_jax.inference.programs import mask_fillings
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import results
from bert_jax.text.tokenizer import Encoding
from bert_jax.text.words import most_central

MASKS = 8  # read off one row; a text with more stands in several


@dataclass(frozen=True)
class Filled:
    token: str
    score: float  # its probability at the mask
    text: str


def fill_mask(model: Runner, texts, *, top: int = 5):
    """For a text with one [MASK] its `top` fillings, best first; for one with several, a list of those for each.

    A mask in a text longer than the model is read in the window where it stands most central.

    >>> best, second = model.fill_mask("the [MASK] sat", top=2)
    >>> best.score > second.score
    True
    """
    model.need(("mlm",), "fill_mask")
    check_number(top, "top", is_whole=True, allowed=Range(1, model.config.vocab_size))
    program = mask_fillings(model.config, top)
    name = model.tokenizer.tokens([model.tokenizer.special.mask])[0]

    def of_chunk(chunk):
        chunk = [as_text(text).replace("[MASK]", name) for text in chunk]
        masks = []
        for i, windows in enumerate(in_windows(model, chunk)):
            masks += find(model, i, chunk[i], windows)
        width = 1 if len(masks) == len(chunk) else MASKS
        rows, columns, slots = [], [], []
        for _, window, position in masks:
            if not rows or rows[-1] is not window or len(columns[-1]) == width:
                rows.append(window)
                columns.append([])
            slots.append((len(rows) - 1, len(columns[-1])))
            columns[-1].append(position)
        positions = np.array([row + [0] * (width - len(row)) for row in columns], np.int32)
        outputs = model.run(rows, program, {"target_positions": positions})
        by_text: list[list] = [[] for _ in chunk]
        for (i, window, position), (row, column) in zip(masks, slots, strict=True):
            scores, ids = outputs[row]
            start, end = window.offsets[position]
            by_text[i].append(
                [
                    filled(model, chunk[i], start, end, int(token), float(score))
                    for score, token in zip(scores[column], ids[column], strict=True)
                ]
            )
        return [fillings[0] if len(fillings) == 1 else fillings for fillings in by_text]

    return results(texts, of_chunk)


def as_text(text) -> str:
    if not isinstance(text, str):
        raise BertJaxError(f"fill_mask reads single texts, not {text!r:.60}")
    return text


def in_windows(model: Runner, texts) -> list[list[Encoding]]:
    longest = model.config.max_positions
    return model.tokenizer.windows(texts, max_length=longest, overlap=(longest - 2) // 2)


def find(model: Runner, i: int, text: str, windows: list[Encoding]) -> list[tuple[int, Encoding, int]]:
    """(text, window, position in it) of each mask, in the window that shows most on both sides of it."""
    mask = model.tokenizer.special.mask
    places = (
        [(window.offsets[i], i) for i, token in enumerate(window.ids) if token == mask] for window in windows
    )
    masks = [(i, windows[n], position) for _, n, position in most_central(windows, places, itself=True)]
    if not masks:
        name = model.tokenizer.tokens([mask])[0]
        raise BertJaxError(f'no {name} in "{text[:60]}"; write one where a word is to be predicted')
    return masks


def filled(model: Runner, text: str, start: int, end: int, token: int, score: float) -> Filled:
    word = model.tokenizer.decode([token]).strip() or model.tokenizer.tokens([token])[0]
    # A mask may take the space before it.
    before = text[:end].removesuffix(text[start:end].lstrip())
    if word.startswith("##") and len(word) > 2:
        before, shown = before.rstrip(), word[2:]
    else:
        shown = word
    return Filled(word, score, before + shown + text[end:])
