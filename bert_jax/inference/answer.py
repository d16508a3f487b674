"""The span of a text that answers a question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bert_jax.errors import BertJaxError
from bert_jax.inference.heads import head_program, need
from bert_jax.inference.streaming import results
from bert_jax.predictions.calibration import softmax

OVERLAP = 128  # tokens that neighbouring windows share, as in BERT's SQuAD runs
LONGEST = 30  # tokens of an answer, likewise
NOTHING = 1e-300  # a probability that has a logarithm
MAY_BE_MISSING = "may_be_missing"  # in config.json: whether the model learnt from questions without an answer


@dataclass(frozen=True)
class Answer:
    text: str
    start: int  # in characters
    end: int
    # The probability of this start times that of this end; where the model was calibrated, that the answer is right.
    score: float


def answer(model, question, text, *, may_be_missing: bool | None = None, longest: int = LONGEST):
    """The best `Answer` to a question in a text of any length, read in windows.

    Lists of questions and of texts go side by side; one question goes with every text, and one text with every
    question. With `may_be_missing` (by default as config.json says, else not), None where [CLS], by which SQuAD 2
    marks a text without an answer, is likelier in every window.

    >>> model.answer("the cat", "the cat sat on the mat").text
    'sat on the'
    """
    if may_be_missing is None:
        may_be_missing = may_miss(model)
    calibration = model.calibration

    def decided(found: tuple[Answer, float]) -> Answer | None:
        answer, gap = found
        if may_be_missing and gap > calibration.missing:
            return None
        return replace(answer, score=calibration.of_answer(answer.score))

    found = candidates(model, question, text, may_be_missing, longest)
    if isinstance(found, tuple):
        return decided(found)
    return list(map(decided, found)) if isinstance(found, list) else map(decided, found)


def may_miss(model) -> bool:
    """Whether it learnt from questions without an answer."""
    return bool(model.layout.published.get(MAY_BE_MISSING))


def candidates(model, question, text, may_be_missing: bool, longest: int = LONGEST):
    """(best answer, log odds of none against it) of each question, before any calibration."""
    need(model, "answer", "answer")
    program = head_program(model.config, "answer", 0)
    most = model.config.max_positions

    def of_chunk(chunk):
        windows = model.tokenizer.windows(chunk, max_length=most, overlap=min(OVERLAP, most // 4))
        logits = iter(model.run([window for found in windows for window in found], program))
        for (_, content), found in zip(chunk, windows, strict=True):
            yield candidate(content, found, [next(logits) for _ in found], longest, may_be_missing)

    return results(side_by_side(question, text), of_chunk)


def side_by_side(question, text):
    if isinstance(question, str) and isinstance(text, str):
        return question, text
    if isinstance(question, str):
        pairs = ((question, one) for one in text)
        return list(pairs) if isinstance(text, Sequence) else pairs
    if isinstance(text, str):
        pairs = ((one, text) for one in question)
        return list(pairs) if isinstance(question, Sequence) else pairs
    if isinstance(question, Sequence) and isinstance(text, Sequence):
        if len(question) != len(text):
            raise BertJaxError(f"{len(question)} questions and {len(text)} texts; lists go side by side")
        return list(zip(question, text, strict=True))
    return zip(question, text, strict=True)


def best(text: str, windows: list, logits: list, longest: int, may_be_missing: bool) -> Answer | None:
    answer, gap = candidate(text, windows, logits, longest, may_be_missing)
    return None if gap > 0 else answer


def candidate(
    text: str, windows: list, logits: list, longest: int, may_be_missing: bool
) -> tuple[Answer, float]:
    """Over all windows: the start and the end, at most `longest` tokens apart, whose probabilities multiply highest;
    and the log of how much likelier no answer is, -inf where there must be one."""
    starts, ends = [], []
    for window, scores in zip(windows, logits, strict=True):
        # Only places in the text, and [CLS] if that may win, share in the probability.
        places = [*([0] if may_be_missing else []), *window.spans[1]]
        starts.append(np.full(len(window.ids), -np.inf))
        ends.append(np.full(len(window.ids), -np.inf))
        starts[-1][places], ends[-1][places] = scores[places, 0], scores[places, 1]
    lengths = np.cumsum([0, *map(len, starts)])
    if not np.isfinite(np.concatenate(starts)).any():
        return Answer("", 0, 0, 0.0), np.inf if may_be_missing else -np.inf
    start_likely, end_likely = softmax(np.concatenate(starts)), softmax(np.concatenate(ends))
    found, missing = None, 1.0
    for n, window in enumerate(windows):
        p, q = start_likely[lengths[n] : lengths[n + 1]], end_likely[lengths[n] : lengths[n + 1]]
        # As in BERT's SQuAD runs: all other windows than the answer's say, rightly, that it is not in them.
        missing = min(missing, p[0] * q[0])
        span = window.spans[1]
        if not len(span):
            continue
        inside = slice(span.start, span.stop)
        product = np.triu(np.outer(p[inside], q[inside]))
        product -= np.triu(product, longest)
        first, last = np.unravel_index(product.argmax(), product.shape)
        score = float(product[first, last])
        if found is None or score > found.score:
            a, b = window.offsets[span.start + first][0], window.offsets[span.start + last][1]
            found = Answer(text[a:b], a, b, score)
    if found is None:
        return Answer("", 0, 0, 0.0), np.inf
    gap = np.log(max(missing, NOTHING)) - np.log(max(found.score, NOTHING))
    return found, float(gap) if may_be_missing else -np.inf
