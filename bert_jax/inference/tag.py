"""Labelled spans in texts: names of people and places, parts of speech. Or a tag for each of given words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.inference.heads import head_program, need
from bert_jax.inference.streaming import Cutter, results
from bert_jax.metrics import OUTSIDE, continues, mark_and_kind
from bert_jax.text.words import Windowed, encode_words, most_central


@dataclass(frozen=True)
class Span:
    label: str
    text: str
    start: int  # in characters of the text it was found in
    end: int
    score: float  # the mean probability of its words' labels


def tag(model, texts):
    """The labelled `Span`s of a text, in order.

    A word has the label of its first token, as in training. Labels such as B-PER and I-PER join to spans; so do equal
    neighbours without that mark. Long texts are read in windows, each word in the one where it stands most central.

    >>> [(span.label, span.text) for span in model.tag("the cat")]
    [('CAT', 'the'), ('CAT', 'cat')]
    """
    need(model, "tag", "tag")
    cut = Cutter(model.tokenizer, model.config.max_positions, "windows")
    program = head_program(model.config, "tag", len(model.labels))

    def of_chunk(chunk: list):
        of_texts = cut(chunk)
        logits = iter(model.run([window for windows in of_texts for window in windows], program))
        for text, windows in zip(chunk, of_texts, strict=True):
            likely = [model.calibration.likely(next(logits)[: len(window.ids)]) for window in windows]
            places = ([(window.offsets[i], i) for i in window.spans[0]] for window in windows)
            central = most_central(windows, places, itself=True)
            pieces = [(place, likely[n][position]) for place, n, position in central]
            yield joined(text, words(text, pieces), model.labels)

    return results(texts, of_chunk)


def tag_words(model, word_lists):
    """One label a word, for a list of words, for a list of such, or for a stream of them; a tuple is a list of words.

    A list of any length is read in windows, as `tag` reads long texts.
    """

    def read(logits):
        return [model.labels[i] for i in logits.argmax(-1)]

    if isinstance(word_lists, list) and word_lists and all(isinstance(word, str) for word in word_lists):
        word_lists = tuple(word_lists)
    found = word_logits(model, word_lists)
    if isinstance(word_lists, tuple):
        return read(found)
    return list(map(read, found)) if isinstance(found, list) else map(read, found)


def word_logits(model, word_lists):
    """[words, labels] of each list of words, before any calibration."""
    need(model, "tag", "tag_words")
    most = model.config.max_positions
    program = head_program(model.config, "tag", len(model.labels))

    def of_chunk(chunk):
        windows = encode_words(model.tokenizer, chunk, max_length=most, overlap=most // 4)
        logits = iter(model.run([window.encoding for found in windows for window in found], program))
        for words, found in zip(chunk, windows, strict=True):
            yield in_words(len(words), found, [next(logits) for _ in found], model.labels)

    return results(word_lists, of_chunk)


def tags_of(
    words: int, windows: Sequence[Windowed], logits: Sequence[np.ndarray], labels: Sequence[str]
) -> list[str]:
    """A label for each word."""
    return [labels[i] for i in in_words(words, windows, logits, labels).argmax(-1)]


def in_words(
    words: int, windows: Sequence[Windowed], logits: Sequence[np.ndarray], labels: Sequence[str]
) -> np.ndarray:
    """Logits of the words; one of which the tokenizer made nothing stands outside of everything."""
    found = np.zeros((words, len(labels)), np.float32)
    found[:, labels.index(OUTSIDE) if OUTSIDE in labels else 0] = 1
    for window, scores in zip(windows, logits, strict=True):
        for position, word in window.words:
            found[word] = scores[position]
    return found


def words(text: str, pieces: list) -> list[tuple[int, int, np.ndarray]]:
    """Pieces ((start, end), probabilities) -> words (start, end, probabilities of the first piece).

    >>> [word[:2] for word in words("unlit 中文", [((0, 2), 1), ((2, 5), 2), ((6, 7), 3), ((7, 8), 4)])]
    [(0, 5), (6, 7), (7, 8)]
    """
    found: list = []
    for (start, end), likely in pieces:
        if start == end:
            continue
        if found and start <= found[-1][1] and is_inside_word(text, start):
            found[-1] = (found[-1][0], max(end, found[-1][1]), found[-1][2])
        else:
            found.append((start, end, likely))
    return found


def is_inside_word(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    return before.isalnum() and after.isalnum() and not (is_ideograph(before) or is_ideograph(after))


def is_ideograph(character: str) -> bool:
    # Han characters are words of their own to BERT's tokenizer.
    return any(
        first <= character <= last for first, last in (("㐀", "鿿"), ("豈", "﫿"), ("𠀀", "\U0002fa1f"))
    )


def joined(text: str, found: list, labels) -> list[Span]:
    spans: list[list] = []  # kind, start, end, scores
    before = OUTSIDE
    for start, end, likely in found:
        name = labels[int(np.argmax(likely))]
        if continues(before, name):
            spans[-1][2] = end
            spans[-1][3].append(float(likely.max()))
        elif name != OUTSIDE:
            spans.append([mark_and_kind(name)[1], start, end, [float(likely.max())]])
        before = name
    return [Span(kind, text[a:b], a, b, sum(s) / len(s)) for kind, a, b, s in spans]
