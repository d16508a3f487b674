"""Fill the masks of a text together in a few passes, the most confident predictions first (mask-predict)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bert_jax.inference.computations import MaskFillings
from bert_jax.inference.masks import MaskPlace, encode_overlapping_windows, find_masks, replace_mask
from bert_jax.inference.runner import Runner
from bert_jax.text.tokenizer import Encoding


@dataclass
class Completion:
    """A text while its masks are filled."""

    text: str
    windows: list[Encoding]
    unfilled: list[MaskPlace]  # masks, in the order of the text
    score: float = 1.0  # the product of the fillings' probabilities when each was chosen
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)  # characters -> token
    words: list[str] = field(default_factory=list)

    def fill(self, mask: MaskPlace, token: int, score: float) -> None:
        """Fill a mask: replace it by the token in every window that contains it."""
        place, self.score = mask[0], self.score * score
        self.chosen[place] = token
        self.unfilled.remove(mask)
        for n, window in enumerate(self.windows):
            if place in window.offsets:
                ids = list(window.input_ids)
                ids[window.offsets.index(place)] = token
                self.windows[n] = replace(window, input_ids=ids)

    def write_words(self, model: Runner) -> "Completion":
        """Write the words into the text, from the last to the first, so that the other offsets stay valid."""
        words = []
        for (start, end), token in sorted(self.chosen.items(), reverse=True):
            word, self.text = replace_mask(model, self.text, start, end, token)
            words.append(word)
        self.words = words[::-1]
        return self


def fill_in_passes(model: Runner, texts: list[str], steps: int) -> Iterator[Completion]:
    completions = [
        Completion(text, list(windows), find_masks(model, text, windows))
        for text, windows in zip(texts, encode_overlapping_windows(model, texts), strict=True)
    ]
    for left in range(steps, 0, -1):
        masks = [(completion, mask) for completion in completions for mask in completion.unfilled]
        predicted = predict_masks(model, masks)
        for completion in completions:
            count = -(-len(completion.unfilled) // left)
            fillings = [(mask, *predicted[id(completion), mask]) for mask in completion.unfilled]
            for mask, score, token in sorted(fillings, key=lambda filling: -filling[1])[:count]:
                completion.fill(mask, token, score)
    return (completion.write_words(model) for completion in completions)


def predict_masks(
    model: Runner, masks: Sequence[tuple[Completion, MaskPlace]]
) -> dict[tuple[int, MaskPlace], tuple[float, int]]:
    """Return (probability, token) of the best filling of each mask, by the id() of its completion and the mask."""
    columns: dict[tuple[int, int], list[int]] = {}  # text, window -> positions of masks
    rows: dict[tuple[int, int], Encoding] = {}
    for completion, (_, n, position) in masks:
        key = id(completion), n
        rows[key] = completion.windows[n]
        columns.setdefault(key, []).append(position)
    if not rows:
        return {}
    # A power of two, so that few programs are compiled.
    width = 1 << (max(map(len, columns.values())) - 1).bit_length()
    positions = np.zeros((len(rows), width), np.int32)
    for row, places in enumerate(columns.values()):
        positions[row, : len(places)] = places
    outputs = model.run(list(rows.values()), MaskFillings(1), {"target_positions": positions})
    by_row = dict(zip(rows, outputs, strict=True))
    fillings = {}
    for completion, mask in masks:
        key = id(completion), mask[1]
        scores, tokens = by_row[key]
        column = columns[key].index(mask[2])
        fillings[id(completion), mask] = float(scores[column, 0]), int(tokens[column, 0])
    return fillings
