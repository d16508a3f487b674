"""Fitting a calibration to examples that nothing else was learnt from.

Every other example fits. The rest measure: the expected calibration error before and after, and how many of the most
probable predictions are right.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bert_jax.predictions.calibration import LEVELS, Calibration, Level, sigmoid, softmax

COLDEST, HOTTEST = 0.1, 20.0
FEW = 10  # right or wrong ones below which nothing is fitted to them alone
BINS = 15
HALVES = slice(0, None, 2), slice(1, None, 2)  # to fit, and to measure


def measured(fitted: Calibration, examples: int, before, after, right, confidence, correct) -> Calibration:
    return replace(
        fitted,
        examples=examples,
        levels=levels(confidence, correct),
        error_before=error(before, right),
        error_after=error(after, right),
    )


def temperature(logits: np.ndarray, truth: np.ndarray) -> float:
    """The divisor of the logits with which the truth is most likely."""
    logits = np.asarray(logits, np.float64)
    true = logits[np.arange(len(truth)), truth]
    if (logits.argmax(-1) == truth).all():
        return 1.0  # it would be 0: without an error nothing shows what is overconfident

    def slope(cold):
        return np.mean((softmax(cold * logits) * logits).sum(-1) - true)

    return 1 / rising_zero(slope)


def worthwhile(logits: np.ndarray, truth: np.ndarray) -> float:
    """The temperature, or 1 where it improves the likelihood but not the calibration error."""
    fitted, right = temperature(logits, truth), logits.argmax(-1) == truth
    before, after = (error(softmax(logits / divisor).max(-1), right) for divisor in (1, fitted))
    return fitted if after < before else 1.0


def binary_temperature(logits: np.ndarray, truth: np.ndarray) -> float:
    logits = np.asarray(logits, np.float64)
    if ((logits > 0) == truth).all():
        return 1.0
    return 1 / rising_zero(lambda cold: np.mean((sigmoid(cold * logits) - truth) * logits))


def rising_zero(function: Callable[[float], float]) -> float:
    """Where a function that rises is 0; the likelihood's slope does, it is convex."""
    low, high = 1 / HOTTEST, 1 / COLDEST
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return float(middle)


def logistic(x: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """(slope, offset) of the log odds that fit best, by Newton's steps; (1, 0) where there are too few of either."""
    right = np.asarray(right, np.float64)
    if not FEW <= right.sum() <= len(right) - FEW:
        return 1.0, 0.0
    design, line = np.stack([x, np.ones(len(x))], 1), np.array([1.0, 0.0])
    for _ in range(50):
        p = sigmoid(design @ line)
        # A little is added, so that a step exists where all odds are equal, and none is too wide.
        curve = design.T @ (design * (p * (1 - p))[:, None]) + 1e-3 * np.eye(2)
        step = np.linalg.solve(curve, design.T @ (p - right) + 1e-3 * (line - (1, 0)))
        line = line - step * min(1, 2 / max(np.abs(step).max(), 1e-9))
    # A slope below 0 would call the better answers the worse ones.
    return (float(line[0]), float(line[1])) if line[0] > 0.05 else (1.0, 0.0)


def best_threshold(likely: np.ndarray, truth: np.ndarray) -> float:
    """Half way between the two probabilities where F1 is best, if what is above is predicted."""
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


def levels(likely: np.ndarray, right: np.ndarray) -> tuple[Level, ...]:
    """Of the most probable 5 %, 10 % and so on to all. Which these are tells nothing of how many are right."""
    order = np.sort(likely)[::-1]
    counts = {math.ceil(len(order) * n / LEVELS) for n in range(1, LEVELS + 1)} - {0}
    kept = [(threshold, likely >= threshold) for threshold in sorted({float(order[n - 1]) for n in counts})]
    return tuple(Level(threshold, int(above.sum()), int(right[above].sum())) for threshold, above in kept)
