"""Outcomes as a report shows them: what is judged one by one with its probability, and each example as text."""

from dataclasses import dataclass

import numpy as np

from bert_jax import metrics
from bert_jax.inference.outcomes import Outcomes, right_answer, said, spans_in, true
from bert_jax.predictions.calibration import NONE, Calibration, all_right

UNITS = {"classes": "texts", "labels": "labels of texts", "tags": "words", "answers": "answers"}
SURE_UNITS = {"classes": "texts", "labels": "texts", "tags": "spans", "answers": "answers"}


@dataclass(frozen=True)
class Shown:
    """An example, as a person reads it."""

    where: str
    text: str
    true: str
    said: str
    probability: float
    right: bool


@dataclass(frozen=True)
class View:
    before: np.ndarray  # of each unit, how likely it is right: as the logits say,
    after: np.ndarray  # and calibrated
    right: np.ndarray
    sure: np.ndarray  # of each answer that could be abstained from, likewise
    sure_right: np.ndarray
    wanted: int  # how many such answers there should be
    shown: list[Shown]


def view(given: Outcomes, calibration: Calibration) -> View:
    return VIEWS[given.kind](given, calibration)


def of_classes(given: Outcomes, calibration: Calibration) -> View:
    logits, truth = np.stack(given.found), np.array(given.truth)
    before, after = NONE.likely(logits).max(-1), calibration.likely(logits).max(-1)
    right = logits.argmax(-1) == truth
    return View(before, after, right, after, right, len(truth), shown(given, calibration, after, right))


def of_labels(given: Outcomes, calibration: Calibration) -> View:
    logits, truth = np.stack(given.found), np.stack(given.truth)
    before, after = (each.likely(logits, several=True) for each in (NONE, calibration))
    chosen = after > calibration.above(len(given.labels))
    sure, right = all_right(after, chosen), (chosen == truth).all(-1)
    texts = shown(given, calibration, sure, right)
    return View(before.ravel(), after.ravel(), truth.ravel(), sure, right, len(truth), texts)


def of_tags(given: Outcomes, calibration: Calibration) -> View:
    likely = [calibration.likely(logits) for logits in given.found]
    spans = [spans_in(*pair, given.labels) for pair in zip(likely, given.truth, strict=True)]
    every = np.array([one for each in spans for one in each]).reshape(-1, 2)
    logits, truth = np.concatenate(given.found), np.concatenate(given.truth)
    wanted = sum(len(list(metrics.spans_of(tags))) for tags in true(given))
    # A text is as doubtful as its most doubtful word.
    least = np.array([one.max(-1).min() for one in likely])
    right = np.array([a == b for a, b in zip(said(given, calibration), true(given), strict=True)])
    return View(
        NONE.likely(logits).max(-1), calibration.likely(logits).max(-1), logits.argmax(-1) == truth,
        every[:, 0], every[:, 1] > 0, wanted, shown(given, calibration, least, right),
    )  # fmt: skip


def of_answers(given: Outcomes, calibration: Calibration) -> View:
    before = np.array([answer.score for answer, _ in given.found])
    after = np.array([calibration.of_answer(score) for score in before])
    given_one = np.array([gap <= calibration.missing for _, gap in given.found])
    words = said(given, calibration)
    exact = [
        right_answer(text, t)[0] if t else text == "" for text, t in zip(words, given.truth, strict=True)
    ]
    right = np.array(exact) > 0
    wanted = sum(bool(t) for t in given.truth)
    texts = shown(given, calibration, np.where(given_one, after, 1 - after), right)
    kept = before[given_one], after[given_one], right[given_one]
    return View(*kept, after[given_one], right[given_one], wanted, texts)


VIEWS = {"classes": of_classes, "labels": of_labels, "tags": of_tags, "answers": of_answers}


def shown(given: Outcomes, calibration: Calibration, likely: np.ndarray, right: np.ndarray) -> list[Shown]:
    rows = zip(given.examples, true(given), said(given, calibration), likely, right, strict=True)
    return [Shown(e.where, *in_words(given.kind, e, t, s), float(p), bool(r)) for e, t, s, p, r in rows]


def in_words(kind: str, example, truth, found) -> tuple[str, str, str]:
    text = example.text if isinstance(example.text, str) else " — ".join(example.text)
    match kind:
        case "labels":
            return text, in_order(truth), in_order(found)
        case "tags":
            return " ".join(example.text), bracketed(example.text, truth), bracketed(example.text, found)
        case "answers":
            return text, " / ".join(dict.fromkeys(truth)) or "none", found or "none"
    return text, truth, found


def in_order(labels) -> str:
    return ", ".join(sorted(labels)) or "none"


def bracketed(words, tags) -> str:
    """
    >>> bracketed(("Ada", "Lovelace", "lived"), ["B-PER", "I-PER", "O"])
    'PER: Ada Lovelace'
    """
    spans = (f"{kind}: {' '.join(words[a:b])}" for kind, a, b in metrics.spans_of(tags))
    return "; ".join(spans) or "none"
