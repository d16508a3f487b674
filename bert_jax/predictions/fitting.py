"""Fitting the numbers of a calibration, each with a prior: that the probabilities are right as they are.

Few examples, or few errors among many, hardly move them; where there are no errors at all they are bounded too.
"""

from collections.abc import Callable

import numpy as np

from bert_jax.predictions.calibration import sigmoid, softmax

COLDEST, HOTTEST = 0.1, 20.0
# Standard deviations of normal priors, of what logits are multiplied by and of what is added to log odds.
FACTOR, OFFSET = 0.5, 1.0
RARE = 20  # texts with a label, at which they and the probabilities decide alike on its threshold
BINS = 15


def temperature(logits: np.ndarray, truth: np.ndarray, expected: tuple[float, float] = (0.0, 0.0)) -> float:
    """The temperature that makes the true labels most likely. `expected` (count, share) adds a prior of `count` further
    examples, of which `share` are classified correctly."""
    logits = np.asarray(logits, np.float64)
    true, top = logits[np.arange(len(truth)), truth], logits.max(-1)
    wrong = (logits.sum(-1) - top) / (logits.shape[-1] - 1)
    more, right = expected[0] / max(len(truth), 1), expected[1]
    wanted = true + more * (right * top + (1 - right) * wrong)

    def slope(factor):
        given = (1 + more) * (softmax(factor * logits) * logits).sum(-1)
        return (given - wanted).sum() + (factor - 1) / FACTOR**2

    return 1 / rising_zero(slope)


def binary_temperature(logits: np.ndarray, truth: np.ndarray, expected: float = 1.0) -> float:
    """The same for a yes-or-no label; the prior is centred on the `expected` temperature."""
    logits = np.asarray(logits, np.float64)

    def slope(factor):
        return ((sigmoid(factor * logits) - truth) * logits).sum() + (factor - 1 / expected) / FACTOR**2

    return 1 / rising_zero(slope)


def expected_right(classes: int) -> tuple[float, float]:
    """The prior of `temperature`, as (count, share): every accuracy from chance to 1 is equally probable.

    It is the beta distribution with the mean and the variance of these accuracies.
    """
    return (2 * classes + 4) / (classes - 1), (1 + 1 / classes) / 2


def rising_zero(function: Callable[[float], float]) -> float:
    """The root of an increasing function, such as the derivative of a convex one, by bisection."""
    low, high = 1 / HOTTEST, 1 / COLDEST
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return float(middle)


def logistic(x: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """(slope, offset) of the log odds that fit best, by Newton's steps."""
    right = np.asarray(right, np.float64)
    design, expected = np.stack([x, np.ones(len(x))], 1), np.array([1.0, 0.0])
    weight, line = np.array([FACTOR, OFFSET]) ** -2.0, expected
    for _ in range(50):
        p = sigmoid(design @ line)
        curve = design.T @ (design * (p * (1 - p))[:, None]) + np.diag(weight)
        step = np.linalg.solve(curve, design.T @ (p - right) + weight * (line - expected))
        line = line - step * min(1, 2 / max(np.abs(step).max(), 1e-9))
    # A slope below 0 would call the better answers the worse ones.
    return (float(line[0]), float(line[1])) if line[0] > 1 / HOTTEST else (1.0, 0.0)


def label_threshold(likely: np.ndarray, truth: np.ndarray) -> float:
    """The probability above which a label is best predicted.

    Few texts with the label say little, so the fewer they are, the more the truth is what the probabilities expect.
    """
    weight = truth.sum() / (truth.sum() + RARE)
    return best_threshold(likely, weight * truth + (1 - weight) * likely)


def best_threshold(likely: np.ndarray, truth: np.ndarray) -> float:
    """Half way between the two probabilities where F1 is best, if what is above is predicted.

    A truth may be a probability too.
    """
    order = np.argsort(-likely, kind="stable")
    p, y = likely[order], truth[order]
    f1 = 2 * np.cumsum(y) / (np.arange(1, len(y) + 1) + y.sum())
    below = np.append(p[1:], 0.0)
    f1[p == below] = -1  # equal ones are predicted together
    best = int(f1.argmax())
    return float((p[best] + below[best]) / 2)


def error(likely: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """The expected calibration error: how far probability and share of right ones lie apart, over equal bins."""
    if not len(likely):
        return 0.0
    place = np.minimum((np.asarray(likely) * bins).astype(int), bins - 1)
    apart = np.bincount(place, np.asarray(likely, np.float64) - np.asarray(right, np.float64), bins)
    return float(np.abs(apart).sum() / len(likely))
