"""Metrics of answers, as SQuAD defines them."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from bert_jax.metrics.score_sums import ScoreSums, check_lengths, safe_ratio


def score_answers(predicted: Sequence[str], truth: Sequence[Sequence[str]]) -> ScoreSums:
    """Score answers as SQuAD does, each against all right answers of its question: `exact`, and `f1` of the words.

    A question without an answer (SQuAD 2.0) has the right answer "". If there is one, all questions are scored by the
    rules of 2.0, which differ from those of 1.1 if a right answer is nothing but articles and punctuation.
    """
    check_lengths(predicted, truth)
    squad_v2 = not all(map(any, truth))

    def scores(sums):
        exact, f1, count, exact_has, f1_has, has = np.moveaxis(sums, -1, 0)
        scores = {"exact": exact / count, "f1": f1 / count}
        if squad_v2:
            # Separate scores for both sorts of question: a model that never answers looks good if many have no answer.
            scores["unanswerable"] = safe_ratio(exact - exact_has, count - has)
            scores |= {
                "answerable_exact": safe_ratio(exact_has, has),
                "answerable_f1": safe_ratio(f1_has, has),
            }
        return scores

    rows = []
    for answer, right in zip(predicted, truth, strict=True):
        exact, f1 = answer_scores(answer, right, squad_v2)
        rows.append([exact, f1, 1, exact * any(right), f1 * any(right), any(right)])
    return ScoreSums(np.array(rows, float), scores)


def answer_scores(answer: str, right: Sequence[str], squad_v2: bool) -> tuple[bool, float]:
    """Return (exact, F1 of the words) of an answer, by the rules of SQuAD 2.0 if `squad_v2`, else of 1.1."""
    if squad_v2:
        right = [text for text in right if answer_words(text)] or [""]
    words = answer_words(answer)
    exact = any(words == answer_words(text) for text in right)
    return exact, max(word_f1(words, answer_words(text), squad_v2) for text in right)


def answer_words(answer: str) -> list[str]:
    """Split an answer into words: lower-cased, without ASCII punctuation, and after that without articles.

    >>> answer_words("The (U.S.) army's a-team")
    ['us', 'armys', 'ateam']
    """
    letters = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def word_f1(words: list[str], right: list[str], squad_v2: bool) -> float:
    if squad_v2 and not (words and right):
        return float(words == right)
    return float(safe_ratio(2 * (Counter(words) & Counter(right)).total(), len(words) + len(right)))
