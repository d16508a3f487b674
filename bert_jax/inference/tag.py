"""Labelled spans in texts: names of people and places, parts of speech. Or a tag for each of given words."""

from bert_jax.errors import BertJaxError
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import series
from bert_jax.predictions.kinds.tags import Pieces, Span, Tags

__all__ = ["Span", "tag", "tag_words"]


def tag(model: Runner, texts):
    """The labelled `Span`s of a text, in order.

    A word has the label of its first token, as in training. Labels such as B-PER and I-PER join to spans; so do equal
    neighbours without that mark. Long texts are read in windows, each word in the one where it stands most central.

    >>> [(span.label, span.text) for span in model.tag("the cat")]
    [('CAT', 'the'), ('CAT', 'cat')]
    """
    kind = model.kind_for(Tags.heads, "tag")

    def read(raw):
        if not isinstance(raw, Pieces):
            raise BertJaxError(
                "tag reads single texts, not pairs or lists of words; call tag_words for words"
            )
        return kind.result(raw, model.calibration)[0]

    return model.outcomes(kind, texts, read)


def tag_words(model: Runner, word_lists):
    """One label a word, for a list of words, for a list of such, or for a stream of them; a tuple is a list of words.

    A list of any length is read in windows, as `tag` reads long texts.
    """
    kind = model.kind_for(Tags.heads, "tag_words")
    word_lists = word_lists if isinstance(word_lists, tuple) else series(word_lists)
    if isinstance(word_lists, list) and word_lists and all(isinstance(word, str) for word in word_lists):
        word_lists = tuple(word_lists)

    def read(raw):
        if isinstance(raw, Pieces):
            raise BertJaxError(f"{raw.text!r:.60} is a text, not a list of words; split it, or call tag")
        return kind.predicted(raw, model.calibration)

    return model.outcomes(kind, word_lists, read)
