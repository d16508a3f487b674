"""Taggers: labelled spans in texts, such as names or parts of speech, and tags for lists of words."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.streaming import Column, Texts, map_texts, ordered_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.predictions.kinds.tags import Tags
from bert_jax.predictions.text_spans import Span, TokenLogits

__all__ = ["Span", "Tagger"]


class Tagger(Encoder):
    """Labels words, in texts or in lists of words."""

    @overload
    def tag(self, texts: str) -> list[Span]: ...

    @overload
    def tag(self, texts: Texts) -> list[list[Span]]: ...

    @overload
    def tag(self, texts: Iterable[str]) -> Iterator[list[Span]]: ...

    def tag(self, texts: Any) -> Any:
        """Return the labelled `Span`s of a text, in order.

        A word gets the label of its first token, as in training. Labels such as B-PER and I-PER are joined to spans;
        without B- and I-, equal labels of neighbouring words are joined. Long texts are read in windows, and each word
        is predicted in the window in which it is most central.

        >>> [(span.label, span.text) for span in model.tag("the cat")]
        [('CAT', 'the'), ('CAT', 'cat')]
        """
        kind = self.require_kind(Tags.heads, "tag")
        compute_outcomes = OutcomePipeline(self, kind)

        def tag_chunk(chunk: Sequence) -> Iterator[list[Span]]:
            for raw, _ in compute_outcomes(chunk):
                if not isinstance(raw, TokenLogits):
                    raise BertJaxError(
                        "tag reads single texts, not pairs or lists of words; call tag_words for words"
                    )
                yield kind.decoder.result_and_confidence(raw, self.calibration)[0]

        return map_texts(texts, tag_chunk)

    @overload
    def tag_words(self, word_lists: list[str] | tuple[str, ...]) -> list[str]: ...

    @overload
    def tag_words(self, word_lists: Sequence[Sequence[str]]) -> list[list[str]]: ...

    @overload
    def tag_words(self, word_lists: np.ndarray | Column) -> list[Any]: ...  # of words, or of lists of words

    @overload
    def tag_words(self, word_lists: Iterable[Sequence[str]]) -> Iterator[list[str]]: ...

    def tag_words(self, word_lists: Any) -> Any:
        """Return one label for each word of a list of words, or of each list in a list or a stream of such lists.

        A tuple is also taken as a list of words. Long lists are read in windows, as `tag` reads long texts.

        >>> model.tag_words(["the", "cat"])
        ['B-CAT', 'B-CAT']
        """
        kind = self.require_kind(Tags.heads, "tag_words")
        word_lists = word_lists if isinstance(word_lists, tuple) else ordered_texts(word_lists)
        if isinstance(word_lists, list) and word_lists and all(isinstance(word, str) for word in word_lists):
            word_lists = tuple(word_lists)
        compute_outcomes = OutcomePipeline(self, kind)

        def tag_chunk(chunk: Sequence) -> Iterator[list[str]]:
            for raw, _ in compute_outcomes(chunk):
                if isinstance(raw, TokenLogits):
                    raise BertJaxError(
                        f"{raw.text!r:.60} is a text, not a list of words; split it, or call tag"
                    )
                yield kind.decoder.predict(raw, self.calibration)

        return map_texts(word_lists, tag_chunk)
