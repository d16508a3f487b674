"""Masked language models: what fits at [MASK], and how probable a text is."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.grouping import group_by_size
from bert_jax.inference.computations import LogLikelihoods
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.masks import (
    Filled,
    FillingPipeline,
    encode_overlapping_windows,
    fill_in_passes,
    require_text,
    use_mask_token,
)
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import Texts, map_texts
from bert_jax.text.encoding import Encoding
from bert_jax.text.word_windows import choose_central_windows

__all__ = ["Filled", "MaskedLM", "PseudoLogLikelihood"]

TOKENS_AT_ONCE = 1 << 18  # tokens of masked copies held in memory at a time


@dataclass(frozen=True)
class PseudoLogLikelihood:
    """How probable a masked language model finds a text, each token from all others."""

    score: float  # the sum of `tokens`
    tokens: tuple[float, ...]  # the log probability of each token, in order

    @property
    def perplexity(self) -> float:
        """The perplexity per token, to compare texts of different lengths."""
        return math.exp(-self.score / len(self.tokens))


class MaskedLM(Encoder):
    """Predicts masked words."""

    @overload
    def fill_mask(self, texts: str, *, top_k: int = ..., steps: int = ...) -> Any: ...

    @overload
    def fill_mask(self, texts: Texts, *, top_k: int = ..., steps: int = ...) -> list[Any]: ...

    @overload
    def fill_mask(self, texts: Iterable[str], *, top_k: int = ..., steps: int = ...) -> Iterator[Any]: ...

    def fill_mask(self, texts: Any, *, top_k: int = 5, steps: int = 0) -> Any:
        """Return the `top_k` fillings of a text with one [MASK], best first; for several masks, a list for each.

        With `steps`, all masks of a text are filled together in this number of passes: each pass keeps the fillings
        that the model is most confident of, and the next pass reads them. The result is then a single `Filled` for all
        masks: their tokens, the product of their probabilities, and the whole text.

        If a text is too long for the model, each mask is predicted in the window in which it is most central.

        >>> best, second = model.fill_mask("the [MASK] sat", top_k=2)
        >>> best.score > second.score
        True
        >>> model.fill_mask("the [MASK] [MASK] .", steps=2).text.count("[MASK]")
        0
        """
        check_number(top_k, "top_k", is_whole=True, allowed=Range(1, self.config.vocab_size))
        check_number(steps, "steps", is_whole=True, allowed=Range(0, self.config.max_position_embeddings))
        self.require_head(("mlm",), "fill_mask")

        def fill_together(chunk: Sequence) -> Iterator[Filled]:
            return fill_in_passes(self, [use_mask_token(self, text) for text in chunk], steps)

        return map_texts(texts, fill_together if steps else FillingPipeline(self, top_k))

    @overload
    def pseudo_log_likelihood(self, texts: str) -> PseudoLogLikelihood: ...

    @overload
    def pseudo_log_likelihood(self, texts: Texts) -> list[PseudoLogLikelihood]: ...

    @overload
    def pseudo_log_likelihood(self, texts: Iterable[str]) -> Iterator[PseudoLogLikelihood]: ...

    def pseudo_log_likelihood(self, texts: Any) -> Any:
        """Return the `PseudoLogLikelihood` of each text: the higher its score, the more probable the text.

        Each token is masked in turn and predicted from all others; the score is the sum of the log probabilities of the
        true tokens (Salazar et al., "Masked Language Model Scoring"). If a text is too long for the model, each token
        is predicted in the window in which it is most central.

        >>> likely = model.pseudo_log_likelihood("the cat sat")
        >>> likely.score == sum(likely.tokens), len(likely.tokens)
        (True, 3)
        """
        self.require_head(("mlm",), "pseudo_log_likelihood")

        def score_chunk(chunk: Sequence) -> list[PseudoLogLikelihood]:
            texts = [require_text(text, "pseudo_log_likelihood") for text in chunk]
            logarithms: list[list[float]] = [[] for _ in texts]
            copies = masked_copies(self, texts)
            for part in group_by_size(copies, TOKENS_AT_ONCE, lambda copy: len(copy[1].input_ids)):
                positions, targets = (np.array([[copy[n]] for copy in part], np.int32) for n in (2, 3))
                extra_inputs = {"target_positions": positions, "targets": targets}
                outputs = self.run([copy[1] for copy in part], LogLikelihoods(), extra_inputs)
                for (i, *_), value in zip(part, outputs, strict=True):
                    logarithms[i].append(float(value[0]))
            return [PseudoLogLikelihood(sum(values), tuple(values)) for values in logarithms]

        return map_texts(texts, score_chunk)


# The index of a text, a window of it with one token masked, the position of the mask, and the id of the true token.
MaskedCopy = tuple[int, Encoding, int, int]


def masked_copies(model: Runner, texts: list[str]) -> Iterator[MaskedCopy]:
    """Yield a copy for each token of each text, in order."""
    mask = model.tokenizer.special.mask
    for i, windows in enumerate(encode_overlapping_windows(model, texts)):
        tokens = choose_central_windows(windows, map(token_indices, windows), count_itself=True)
        if not tokens:
            raise BertJaxError(f'"{texts[i][:60]}" has no token to score; leave empty texts out')
        for _, n, position in tokens:
            ids = list(windows[n].input_ids)
            ids[position] = mask
            yield i, replace(windows[n], input_ids=ids), position, windows[n].input_ids[position]


def token_indices(window: Encoding) -> list[tuple[tuple, int]]:
    """Return (place in the text, position in the window) of each token that is not special.

    Several tokens may be parts of one character, so a place is (characters, number of the token at these characters).
    """
    counts: Counter[tuple[int, int]] = Counter()
    indices = []
    for position, characters in enumerate(window.offsets):
        if characters != (0, 0):
            indices.append(((characters, counts[characters]), position))
            counts[characters] += 1
    return indices
