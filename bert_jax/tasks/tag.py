"""Labelled spans in texts: names of people and places, parts of speech."""

from dataclasses import dataclass

import numpy as np

from bert_jax.streaming import Cutter, results
from bert_jax.tasks.classify import softmax
from bert_jax.tasks.heads import head_program, need

OUTSIDE = "O"


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
    """
    need(model, "tag", "tag")
    cut = Cutter(model.tokenizer, model.config.max_positions, "windows")
    program = head_program(model.config, "tag", len(model.labels))

    def of_chunk(chunk):
        windows = cut(chunk)
        logits = iter(model.run([window for found in windows for window in found], program))
        for text, found in zip(chunk, windows, strict=True):
            best: dict[tuple[int, int], tuple] = {}
            for window in found:
                likely = softmax(next(logits)[: len(window.ids)])
                for position in window.spans[0]:
                    margin = min(position, len(window.ids) - position)
                    place = window.offsets[position]
                    if place not in best or margin > best[place][0]:
                        best[place] = (margin, likely[position])
            yield joined(text, words(text, [(place, best[place][1]) for place in sorted(best)]), model.labels)

    return results(texts, of_chunk)


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
    spans: list[list] = []  # label, start, end, scores
    for start, end, likely in found:
        name = labels[int(np.argmax(likely))]
        mark, dash, kind = name.partition("-")
        if not (dash and mark in ("B", "I", "E", "S")):
            mark, kind = "I", name
        if name == OUTSIDE:
            spans.append([None, end, end, []])
        elif spans and spans[-1][0] == kind and mark in ("I", "E"):
            spans[-1][2] = end
            spans[-1][3].append(float(likely.max()))
        else:
            spans.append([kind, start, end, [float(likely.max())]])
    return [Span(kind, text[a:b], a, b, sum(s) / len(s)) for kind, a, b, s in spans if kind is not None]
