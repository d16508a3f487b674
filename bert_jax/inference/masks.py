"""Find the masks of texts in windows, and replace them by words."""

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.runner import Runner
from bert_jax.text.tokenizer import Encoding
from bert_jax.text.word_windows import choose_central_windows

MaskPlace = tuple[
    tuple[int, int], int, int
]  # characters in the text, the index of a window, and the position in it


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
    places = (
        [(window.offsets[i], i) for i, token in enumerate(window.input_ids) if token == mask]
        for window in windows
    )
    if masks := choose_central_windows(windows, places, count_itself=True):
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
