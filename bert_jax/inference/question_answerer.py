"""The span of a text that answers a question."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat, zip_longest
from typing import Any, overload

from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.streaming import Texts, map_texts, ordered_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.predictions.kinds.answers import MAX_ANSWER_TOKENS, Answer, Answers

__all__ = ["Answer", "QuestionAnswerer"]


class QuestionAnswerer(Encoder):
    """Finds the answer to a question in a text."""

    @overload
    def answer(
        self, question: str, text: str, *, allow_no_answer: bool | None = ..., longest: int = ...
    ) -> Answer | None: ...

    @overload
    def answer(
        self,
        question: str | Texts,
        text: str | Texts,
        *,
        allow_no_answer: bool | None = ...,
        longest: int = ...,
    ) -> list[Answer | None]: ...

    @overload
    def answer(
        self,
        question: Iterable[str],
        text: Iterable[str],
        *,
        allow_no_answer: bool | None = ...,
        longest: int = ...,
    ) -> Iterator[Answer | None]: ...

    def answer(
        self,
        question: Any,
        text: Any,
        *,
        allow_no_answer: bool | None = None,
        longest: int = MAX_ANSWER_TOKENS,
    ) -> Any:
        """Return the best `Answer` to a question in a text of any length, which is read in windows.

        Lists of questions and texts are paired by position; a single question is paired with every text, and a single
        text with every question. With `allow_no_answer` (default: the setting in config.json, or False without one),
        return None if in every window [CLS], which marks a text without an answer in SQuAD 2, is more probable than
        the best span. A calibrated model may have another threshold. An answer has at most `longest` tokens.

        >>> model.answer("the cat", "the cat sat on the mat").text
        'sat on the'
        """
        check_number(longest, "longest", is_whole=True, allowed=Range(1))
        if allow_no_answer is not None:
            check_flag(allow_no_answer, "allow_no_answer")
        kind = self.require_kind(Answers.heads, "answer")
        kind = kind.with_options(allow_no_answer=allow_no_answer, longest=longest)
        compute_outcomes = OutcomePipeline(self, kind)

        def answer_chunk(chunk: Sequence) -> Iterator[Answer | None]:
            for raw, _ in compute_outcomes(chunk):
                yield kind.decoder.result_and_confidence(raw, self.calibration)[0]

        return map_texts(pair_up(question, text), answer_chunk)


def pair_up(question, text):
    """Return the pair, a list of pairs, or an iterator of pairs if a side is a stream."""
    if isinstance(question, str) and isinstance(text, str):
        return question, text
    question, text = (side if isinstance(side, str) else ordered_texts(side) for side in (question, text))
    sides = [side for side in (question, text) if not isinstance(side, str)]
    listed = all(isinstance(side, Sequence) for side in sides)
    if listed and len(set(map(len, sides))) > 1:
        raise BertJaxError(f"{len(question)} questions and {len(text)} texts; give lists of the same length")
    both = (repeat(side) if isinstance(side, str) else side for side in (question, text))
    pairs = zip_longest(*both, fillvalue=None) if len(sides) == 2 else zip(*both, strict=False)
    return list(pairs) if listed else pairs
