"""The pseudo-log-likelihood of a text under a masked language model, for ranking sentences.

Each token is masked in turn and predicted from all other tokens; the score is the sum of the log probabilities of the
true tokens (Salazar et al., "Masked Language Model Scoring").
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.grouping import group_by_size
from bert_jax.inference.computations import LogLikelihoods
from bert_jax.inference.masks import encode_overlapping_windows, require_text
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import map_texts
from bert_jax.text.tokenizer import Encoding
from bert_jax.text.word_windows import choose_central_windows

TOKENS_AT_ONCE = 1 << 18  # tokens of masked copies held in memory at a time


@dataclass(frozen=True)
class PseudoLogLikelihood:
    score: float  # the sum of `tokens`
    tokens: tuple[float, ...]  # the log probability of each token, in order

    @property
    def perplexity(self) -> float:
        """The perplexity per token, to compare texts of different lengths."""
        return math.exp(-self.score / len(self.tokens))


def score_texts(model: Runner, texts):
    """Return the pseudo-log-likelihood of each text."""
    model.require_head(("mlm",), "pseudo_log_likelihood")

    def score_chunk(chunk):
        texts = [require_text(text, "pseudo_log_likelihood") for text in chunk]
        logarithms: list[list[float]] = [[] for _ in texts]
        for part in group_by_size(
            masked_copies(model, texts), TOKENS_AT_ONCE, lambda copy: len(copy[1].input_ids)
        ):
            positions, targets = (np.array([[copy[n]] for copy in part], np.int32) for n in (2, 3))
            beside = {"target_positions": positions, "targets": targets}
            for (i, *_), value in zip(
                part, model.run([copy[1] for copy in part], LogLikelihoods(), beside), strict=True
            ):
                logarithms[i].append(float(value[0]))
        return [PseudoLogLikelihood(sum(values), tuple(values)) for values in logarithms]

    return map_texts(texts, score_chunk)


# The index of a text, a window of it with one token masked, the position of the mask, and the id of the true token.
MaskedCopy = tuple[int, Encoding, int, int]


def masked_copies(model: Runner, texts: list[str]) -> Iterator[MaskedCopy]:
    """Yield a copy for each token of each text, in order."""
    mask = model.tokenizer.special.mask
    for i, windows in enumerate(encode_overlapping_windows(model, texts)):
        tokens = choose_central_windows(windows, map(token_places, windows), count_itself=True)
        if not tokens:
            raise BertJaxError(f'"{texts[i][:60]}" has no token to score; leave empty texts out')
        for _, n, position in tokens:
            ids = list(windows[n].input_ids)
            ids[position] = mask
            yield i, replace(windows[n], input_ids=ids), position, windows[n].input_ids[position]


def token_places(window: Encoding) -> list[tuple[tuple, int]]:
    """Return (place in the text, position in the window) of each token that is not special.

    Several tokens may be parts of one character, so a place is (characters, number of the token at these characters).
    """
    counts: Counter[tuple[int, int]] = Counter()
    places = []
    for position, characters in enumerate(window.offsets):
        if characters != (0, 0):
            places.append(((characters, counts[characters]), position))
            counts[characters] += 1
    return places
