"""How far a model's answers can be trusted: what is learnt of it after training, on examples kept for that alone.

Every other of them fits: temperatures that make probabilities fit the share that is right, thresholds of several
labels, what speaks for no answer. The rest measure: the expected calibration error before and after, and how many
of the surest answers are right, from which follows above which probability a wanted precision can be promised.
The order of a text's classes never changes. `calibration.json` in a model directory holds it; without, and for
directories of others, all is as the logits say.
"""

import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bert_jax.errors import BertJaxError
from bert_jax.files import replacing

FILE = "calibration.json"
COLDEST, HOTTEST = 0.1, 20.0
FEW = 10  # right or wrong ones below which nothing is fitted to them alone
BINS = 15
LEVELS = 20  # shares of the surest answers for which precision was counted
RISK = 0.05  # that a promised precision does not hold, whichever is asked for


@dataclass(frozen=True)
class Level:
    """Of answers at least as probable as `threshold`, how many there were and how many were right."""

    threshold: float
    answers: int
    right: int


@dataclass(frozen=True)
class Calibration:
    """By default what changes nothing."""

    kind: str = ""  # classes, labels, tags or answers; "" where nothing was learnt
    labels: tuple[str, ...] = ()
    temperatures: tuple[float, ...] = ()  # one, or one a label
    thresholds: tuple[float, ...] = ()  # of several labels at once, the probability above which each is said
    offset: float = 0.0  # of the log odds that an answer is right
    missing: float = 0.0  # log odds of no answer, against the best one, above which there is none
    levels: tuple[Level, ...] = ()
    examples: int = 0
    error_before: float = 0.0  # the expected calibration error, of examples that nothing was fitted to
    error_after: float = 0.0

    @property
    def learnt(self) -> bool:
        return bool(self.kind)

    def likely(self, logits: np.ndarray, several: bool = False) -> np.ndarray:
        """Probabilities of each class, or of each of `several` labels, from logits [..., labels]."""
        if self.temperatures:
            logits = logits / np.asarray(self.temperatures, np.float32)
        return sigmoid(logits) if several else softmax(logits)

    def above(self, labels: int) -> np.ndarray:
        """Of several labels at once, the probability above which each is said."""
        return np.asarray(self.thresholds or (0.5,) * labels)

    def of_answer(self, score: float) -> float:
        """The probability that an answer is right."""
        if self.kind != "answers":
            return score
        return float(sigmoid(log_odds(np.array(score)) / self.temperatures[0] + self.offset))

    def sure(self, precision: float) -> float:
        """The lowest probability above which answers are right this often, but for a risk of RISK."""
        if not 0 < precision < 1:
            raise BertJaxError(f"a precision is between 0 and 1, not {precision:g}")
        if not self.learnt:
            raise BertJaxError(
                "this model was not calibrated, so no precision can be promised; `bert-jax train` calibrates what it "
                "trains, unless data.calibration_share is 0 or too few examples are left"
            )
        risk = RISK / LEVELS
        kept = [lv.threshold for lv in self.levels if tail(lv.answers, lv.right, precision) <= risk]
        if not kept:
            best = max((promised(level, risk) for level in self.levels), default=0.0)
            raise BertJaxError(
                f"a precision of {precision:g} cannot be promised: of {self.examples:,} examples kept for calibration "
                f"half measure it, and show {math.floor(best * 1000) / 1000:g} at most; ask for less, or keep more, "
                "--config.data.calibration_share"
            )
        return min(kept)


NONE = Calibration()


# Fitting


def of_classes(logits: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> Calibration:
    """`truth` are numbers of classes."""
    first, rest = halves(len(logits))
    fitted = Calibration("classes", tuple(labels), (worthwhile(logits[first], truth[first]),))
    before, after = softmax(logits[rest]), fitted.likely(logits[rest])
    right = before.argmax(-1) == truth[rest]
    return measured(fitted, len(logits), before.max(-1), after.max(-1), right, after.max(-1), right)


def of_several(logits: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> Calibration:
    """`truth` [texts, labels] are zeros and ones. A text is right where all its labels are."""
    first, rest = halves(len(logits))
    together = binary_temperature(logits[first].ravel(), truth[first].ravel())
    temperatures, thresholds = [], []
    for z, y in zip(logits[first].T, truth[first].T, strict=True):
        enough = FEW <= y.sum() <= len(y) - FEW
        temperatures.append(binary_temperature(z, y) if enough else together)
        thresholds.append(best_threshold(sigmoid(z / temperatures[-1]), y) if enough else 0.5)
    fitted = Calibration("labels", tuple(labels), tuple(temperatures), tuple(thresholds))
    after = fitted.likely(logits[rest], several=True)
    said = after > fitted.above(len(labels))
    right = (said == truth[rest]).all(-1)
    before = sigmoid(logits[rest]).ravel()
    return measured(
        fitted, len(logits), before, after.ravel(), truth[rest].ravel(), all_right(after, said), right
    )


def of_tags(
    logits: Sequence[np.ndarray], truth: Sequence, labels: Sequence[str], spans_in: Callable
) -> Calibration:
    """Of each text [words, labels] and numbers of tags. `spans_in(likely, truth)` gives (probability, whether it is
    right) of each span said."""
    first, rest = ([i for i in range(len(logits)) if i % 2 == half] for half in (0, 1))
    words = [np.concatenate([x[i] for i in first]) for x in (logits, truth)]
    fitted = Calibration("tags", tuple(labels), (worthwhile(*words),))
    z, y = (np.concatenate([x[i] for i in rest]) for x in (logits, truth))
    before, after = softmax(z), fitted.likely(z)
    right = before.argmax(-1) == y
    spans = np.array([s for i in rest for s in spans_in(fitted.likely(logits[i]), truth[i])]).reshape(-1, 2)
    return measured(
        fitted, len(logits), before.max(-1), after.max(-1), right, spans[:, 0], spans[:, 1].astype(bool)
    )


def of_answers(
    scores: np.ndarray, f1: np.ndarray, exact: np.ndarray, gaps: np.ndarray, none: np.ndarray
) -> Calibration:
    """Of the best answer of each question its score, word F1 and whether it is right; the log odds of no answer
    against it (-inf where there must be one); whether none is right."""
    first, rest = halves(len(scores))
    missing = best_gap(gaps[first], f1[first], none[first])
    given = [half[gaps[half] <= missing] for half in (first, rest)]
    slope, offset = logistic(log_odds(scores[given[0]]), exact[given[0]])
    fitted = Calibration("answers", (), (1 / slope,), offset=offset, missing=missing)
    before, right = scores[given[1]], exact[given[1]]
    after = np.array([fitted.of_answer(score) for score in before])
    return measured(fitted, len(scores), before, after, right, after, right)


def measured(fitted: Calibration, examples: int, before, after, right, sure, sure_right) -> Calibration:
    found = asdict(fitted) | {
        "labels": fitted.labels,
        "levels": levels(sure, sure_right),
        "examples": examples,
    }
    found |= {"error_before": error(before, right), "error_after": error(after, right)}
    return Calibration(**found)


def halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(0, count, 2), np.arange(1, count, 2)


def temperature(logits: np.ndarray, truth: np.ndarray) -> float:
    """The divisor of the logits with which the truth is likeliest."""
    logits = np.asarray(logits, np.float64)
    true = logits[np.arange(len(truth)), truth]
    if (logits.argmax(-1) == truth).all():
        return 1.0  # it would be 0: without an error nothing says how sure is too sure

    def slope(cold):
        return np.mean((softmax(cold * logits) * logits).sum(-1) - true)

    return 1 / rising_zero(slope, 1 / HOTTEST, 1 / COLDEST)


def worthwhile(logits: np.ndarray, truth: np.ndarray) -> float:
    """The temperature, or 1 where the likelihood gets better by it and the calibration error does not."""
    heat, right = temperature(logits, truth), logits.argmax(-1) == truth
    before, after = (error(softmax(logits / each).max(-1), right) for each in (1, heat))
    return heat if after < before else 1.0


def binary_temperature(logits: np.ndarray, truth: np.ndarray) -> float:
    logits = np.asarray(logits, np.float64)
    if ((logits > 0) == truth).all():
        return 1.0
    return 1 / rising_zero(
        lambda cold: np.mean((sigmoid(cold * logits) - truth) * logits), 1 / HOTTEST, 1 / COLDEST
    )


def rising_zero(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises from `low` to `high` is 0; the likelihood's slope does, it is convex."""
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return float(middle)


def logistic(x: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """(slope, offset) of the log odds that fit best, by Newton's steps; (1, 0) where too little speaks for others."""
    right = np.asarray(right, np.float64)
    if not FEW <= right.sum() <= len(right) - FEW:
        return 1.0, 0.0
    design, found = np.stack([x, np.ones(len(x))], 1), np.array([1.0, 0.0])
    for _ in range(50):
        p = sigmoid(design @ found)
        # A little is added, so that a step exists where all odds are equal, and none is too wide.
        curve = design.T @ (design * (p * (1 - p))[:, None]) + 1e-3 * np.eye(2)
        step = np.linalg.solve(curve, design.T @ (p - right) + 1e-3 * (found - (1, 0)))
        found = found - step * min(1, 2 / max(np.abs(step).max(), 1e-9))
    # A slope below 0 would call the better answers the worse ones.
    return (float(found[0]), float(found[1])) if found[0] > 0.05 else (1.0, 0.0)


def best_threshold(likely: np.ndarray, truth: np.ndarray) -> float:
    """Half way between the two probabilities where F1 is best, if what is above is said."""
    order = np.argsort(-likely, kind="stable")
    p, y = likely[order], truth[order]
    f1 = 2 * np.cumsum(y) / (np.arange(1, len(y) + 1) + y.sum())
    below = np.append(p[1:], 0.0)
    f1[p == below] = -1  # equal ones are said together
    best = int(f1.argmax())
    return float((p[best] + below[best]) / 2)


def best_gap(gaps: np.ndarray, f1: np.ndarray, none: np.ndarray) -> float:
    """The log odds of no answer above which to give none, by the mean F1."""
    if none.sum() < FEW or not np.isfinite(gaps).all():
        return 0.0
    order = np.argsort(gaps, kind="stable")
    # Of the first n answered, and the others not.
    total = np.append(0, np.cumsum(f1[order])) + np.append(0, np.cumsum(none[order][::-1]))[::-1]
    edges = np.concatenate([gaps[order][:1] - 1, gaps[order], gaps[order][-1:] + 1])
    best = int(total.argmax())
    return float((edges[best] + edges[best + 1]) / 2)


def all_right(likely: np.ndarray, said: np.ndarray) -> np.ndarray:
    """The probability that all of a text's labels are right, as if each were for itself."""
    return np.where(said, likely, 1 - likely).prod(-1)


# Measuring


def error(likely: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """The expected calibration error: how far probability and share of right ones lie apart, over equal bins."""
    if not len(likely):
        return 0.0
    place = np.minimum((np.asarray(likely) * bins).astype(int), bins - 1)
    apart = np.bincount(place, np.asarray(likely, np.float64) - np.asarray(right, np.float64), bins)
    return float(np.abs(apart).sum() / len(likely))


def levels(likely: np.ndarray, right: np.ndarray) -> tuple[Level, ...]:
    """Of the surest 5 %, 10 % and so on to all. Which these are says nothing of how many are right."""
    order = np.sort(likely)[::-1]
    counts = {math.ceil(len(order) * n / LEVELS) for n in range(1, LEVELS + 1)} - {0}
    found = []
    for threshold in sorted({float(order[count - 1]) for count in counts}):
        sure = likely >= threshold
        found.append(Level(threshold, int(sure.sum()), int(right[sure].sum())))
    return tuple(found)


def tail(answers: int, right: int, precision: float) -> float:
    """How likely it is to see so few wrong ones, or fewer, were the true precision no more than `precision`."""
    wrong = np.arange(answers - right + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, answers + 1)))])
    terms = logs[answers] - logs[wrong] - logs[answers - wrong]
    terms = terms + wrong * math.log1p(-precision) + (answers - wrong) * math.log(precision)
    return float(min(1.0, np.exp(terms).sum()))


def promised(level: Level, risk: float) -> float:
    """The highest precision that this many right ones speak for."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(level.answers, level.right, middle) <= risk else (low, middle)
    return low


# The file


def save(directory, calibration: Calibration) -> None:
    """Writes the file, or takes an old one away where there is nothing to write."""
    path = Path(directory) / FILE
    if not calibration.learnt:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as new:
        new.write_text(json.dumps(asdict(calibration), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(directory, labels: Sequence[str]) -> Calibration:
    """That of a model with these labels; if it is another's, that is said and nothing is changed."""
    path = Path(directory) / FILE
    if not path.is_file():
        return NONE
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        said["levels"] = tuple(Level(**level) for level in said["levels"])
        said = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
        found = Calibration(**said)
    except (ValueError, TypeError, KeyError) as problem:
        raise BertJaxError(f"{path} cannot be read ({problem}); delete it, or train again") from problem
    if found.labels and found.labels != tuple(labels):
        warnings.warn(f"{path} is of other labels than the model's and is left out; delete it", stacklevel=3)
        return NONE
    return found


def softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


def log_odds(p: np.ndarray) -> np.ndarray:
    p = np.clip(np.asarray(p, np.float64), 1e-6, 1 - 1e-6)
    return np.log(p) - np.log1p(-p)
