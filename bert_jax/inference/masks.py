"""Predictions of a masked language model for [MASK]: for each mask by itself, or for those of a text together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.computations import MaskFillings
from bert_jax.inference.runner import ModelInputs, Runner, TextPipeline
from bert_jax.text.encoding import Encoding
from bert_jax.text.truncation import TruncationCounter
from bert_jax.text.word_windows import choose_central_windows

MASKS_PER_ROW = 8  # a text with more masks takes several rows
MaskPlace = tuple[tuple[int, int], int, int]  # characters in the text, index of a window, position in it


@dataclass(frozen=True)
class Filled:
    """A token at a mask, and the text with it."""

    token: str
    score: float  # its probability at the mask
    text: str
    token_id: int | None = None  # None for the tokens of several masks


def require_text(text, what: str = "fill_mask") -> str:
    if not isinstance(text, str):
        raise BertJaxError(f"{what} reads single texts, not {text!r:.60}")
    return text


def use_mask_token(model: Runner, text) -> str:
    """Replace each [MASK] by the model's own mask token."""
    return require_text(text).replace("[MASK]", mask_token(model))


def mask_token(model: Runner) -> str:
    return model.tokenizer.tokens([model.tokenizer.special.mask])[0]


def encode_overlapping_windows(model: Runner, texts) -> list[list[Encoding]]:
    longest = model.config.max_position_embeddings
    return model.tokenizer.windows(texts, max_length=longest, overlap=(longest - 2) // 2)


def find_masks(model: Runner, text: str, windows: list[Encoding]) -> list[MaskPlace]:
    """Find each mask in the window in which it is most central."""
    mask = model.tokenizer.special.mask
    indices = (
        [(window.offsets[i], i) for i, token in enumerate(window.input_ids) if token == mask]
        for window in windows
    )
    if masks := choose_central_windows(windows, indices, count_itself=True):
        return masks
    raise BertJaxError(f'no {mask_token(model)} in "{text[:60]}"; write one where a word is to be predicted')


def replace_mask(model: Runner, text: str, start: int, end: int, token: int) -> tuple[str, str]:
    """Return (the token as a word, the text with the word in place of the mask at characters `start` to `end`)."""
    word = model.tokenizer.decode([token]).strip() or model.tokenizer.tokens([token])[0]
    # The characters of a mask may include the space before it.
    before = text[:end].removesuffix(text[start:end].lstrip())
    if word.startswith("##") and len(word) > 2:
        before, shown = before.rstrip(), word[2:]
    else:
        shown = word
    return word, before + shown + text[end:]


@dataclass
class FilledText:
    """A text while its masks are filled."""

    text: str
    windows: list[Encoding]
    unfilled: list[MaskPlace]  # masks, in the order of the text
    score: float = 1.0  # the product of the fillings' probabilities when each was chosen
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)  # characters -> token

    def fill(self, mask: MaskPlace, token: int, score: float) -> None:
        """Fill a mask: replace it by the token in every window that contains it."""
        mask_offset, self.score = mask[0], self.score * score
        self.chosen[mask_offset] = token
        self.unfilled.remove(mask)
        for n, window in enumerate(self.windows):
            if mask_offset in window.offsets:
                ids = list(window.input_ids)
                ids[window.offsets.index(mask_offset)] = token
                self.windows[n] = replace(window, input_ids=ids)

    def write_words(self, model: Runner) -> Filled:
        """Write the words into the text, from the last to the first, so that the other offsets stay valid."""
        text, words = self.text, []
        for (start, end), token in sorted(self.chosen.items(), reverse=True):
            word, text = replace_mask(model, text, start, end, token)
            words.append(word)
        return Filled(" ".join(reversed(words)), self.score, text)


def fill_in_passes(model: Runner, texts: list[str], steps: int) -> Iterator[Filled]:
    """Fill the masks of each text in a few passes, the most confident predictions first (mask-predict)."""
    completions = [
        FilledText(text, list(windows), find_masks(model, text, windows))
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
    model: Runner, masks: Sequence[tuple[FilledText, MaskPlace]]
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
    for row, indices in enumerate(columns.values()):
        positions[row, : len(indices)] = indices
    outputs = model.run(list(rows.values()), MaskFillings(1), {"target_positions": positions})
    by_row = dict(zip(rows, outputs, strict=True))
    fillings = {}
    for completion, mask in masks:
        key = id(completion), mask[1]
        scores, tokens = by_row[key]
        column = columns[key].index(mask[2])
        fillings[id(completion), mask] = float(scores[column, 0]), int(tokens[column, 0])
    return fillings


class FillingPipeline(TextPipeline[list]):
    """Fills each mask of a text; the other masks of the text stay unfilled."""

    extra_shapes = ({"target_positions": (1,)}, {"target_positions": (MASKS_PER_ROW,)})

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
