"""Masked language models: what fits at [MASK], and how probable a text is."""

from collections.abc import Iterable, Iterator
from typing import Any, overload

from bert_jax.core.config import Range, check_number
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.masks import Filled, fill_masks
from bert_jax.inference.pseudo_likelihood import PseudoLogLikelihood, score_texts
from bert_jax.inference.streaming import Texts

__all__ = ["Filled", "MaskedLM", "PseudoLogLikelihood"]


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
        return fill_masks(self, texts, top_k, steps)

    @overload
    def pseudo_log_likelihood(self, texts: str) -> PseudoLogLikelihood: ...

    @overload
    def pseudo_log_likelihood(self, texts: Texts) -> list[PseudoLogLikelihood]: ...

    @overload
    def pseudo_log_likelihood(self, texts: Iterable[str]) -> Iterator[PseudoLogLikelihood]: ...

    def pseudo_log_likelihood(self, texts: Any) -> Any:
        """Return the `PseudoLogLikelihood` of each text: the higher its score, the more probable the text.

        Each token is masked in turn and predicted from all others. If a text is too long for the model, each token is
        predicted in the window in which it is most central.

        >>> likely = model.pseudo_log_likelihood("the cat sat")
        >>> likely.score == sum(likely.tokens), len(likely.tokens)
        (True, 3)
        """
        return score_texts(self, texts)
