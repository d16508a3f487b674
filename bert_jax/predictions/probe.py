"""The best linear function of frozen features: a regularised regression, found in seconds.

Its penalty is the one with which every part of the data is predicted best by a fit to the others.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from threadpoolctl import threadpool_limits

from bert_jax.data.randomness import bits, key_of, unit

# From outputs to what is learnt: one of several classes, any number of them, or numbers.
Link = Literal["softmax", "sigmoid", "identity"]
PENALTIES = 10.0 ** np.arange(
    2, -2.5, -0.5
)  # the strongest first: each solution begins the search for the next
FOLDS = 5
SPREAD = 10.0  # of scaled features, see `fit`
MOST = 50_000  # units that are fitted to; more would make the fit better by little, and slower by much
MOST_TRIED = 4_000  # of these, that choose the penalty


@dataclass(frozen=True)
class Linear:
    kernel: np.ndarray  # [D, outputs]
    bias: np.ndarray  # [outputs]
    penalties: int = 0  # the last of so many of the strongest was its own

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return features @ self.kernel + self.bias


@dataclass(frozen=True)
class Units:
    """What is learnt from: features [N, D], targets [N, outputs] (a class is a one among zeros), and how much each of
    the units weighs. Units of one group, such as the words of a text, are never on both sides of a fold."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    group: np.ndarray

    def __getitem__(self, kept) -> "Units":
        return Units(self.x[kept], self.y[kept], self.weight[kept], self.group[kept])


def fit(units: Units, link: Link, strongest: int = 0) -> Linear:
    """By the best penalty, or by the last of so many of the `strongest`."""
    # Threads that wait for one another between so many small products cost more than they bring: with two, 400 texts
    # took 9.4 s for 0.4, and 50,000 took twice as long.
    with threadpool_limits(limits=1, user_api="blas"):
        return fit_alone(units, link, strongest)


def fit_alone(units: Units, link: Link, strongest: int) -> Linear:
    units = units[sampled(units.group, MOST)]
    # Numbers are learnt as distances from their mean, in units of their spread.
    level, size = (units.y.mean(0), units.y.std(0) or 1.0) if link == "identity" else (0.0, 1.0)
    centre = units.x.mean(0)
    # The mean squared distance from the centre becomes SPREAD, so that penalties mean the same for all features.
    scale = np.sqrt(((units.x - centre) ** 2).sum(1).mean() / SPREAD) or 1.0
    units = replace(units, x=(units.x - centre) / scale, y=(units.y - level) / size)
    if not strongest:
        tried = units[sampled(units.group, MOST_TRIED)]
        strongest = 1 + int(np.argmin(out_of_fold(tried, link)))
    model = along(units, link, PENALTIES[:strongest])[-1]
    kernel = model.kernel * size / scale
    return Linear(kernel, model.bias * size + level - centre @ kernel, strongest)


def out_of_fold(units: Units, link: Link) -> np.ndarray:
    """The summed loss by each penalty, where every unit is predicted by a fit to the other folds."""
    folds, losses = folds_of(units), np.zeros(len(PENALTIES))
    for fold in np.unique(folds):
        inside = units[folds == fold]
        for n, model in enumerate(along(units[folds != fold], link, PENALTIES)):
            losses[n] += loss_of(link, model(inside.x), inside)[0]
    return losses


def along(units: Units, link: Link, penalties: np.ndarray) -> list[Linear]:
    """The fit with each penalty."""
    outputs = units.y.shape[1]
    model = Linear(np.zeros((units.x.shape[1], outputs)), np.zeros(outputs))
    return [model := regress(units, link, penalty, model) for penalty in penalties]


def regress(units: Units, link: Link, penalty: float, begin: Linear) -> Linear:
    """The least sum of the losses and of `penalty` times half the squared kernel."""
    outputs = units.y.shape[1]

    def unpacked(flat):
        return Linear(flat[:-outputs].reshape(-1, outputs), flat[-outputs:])

    def objective(flat):
        model = unpacked(flat)
        loss, slope = loss_of(link, model(units.x), units)
        kernel = units.x.T @ slope + penalty * model.kernel
        return loss + penalty / 2 * (model.kernel**2).sum(), np.append(kernel, slope.sum(0))

    return unpacked(minimize(objective, np.append(begin.kernel, begin.bias), jac=True, method="L-BFGS-B").x)


def loss_of(link: Link, outputs: np.ndarray, units: Units) -> tuple[float, np.ndarray]:
    """The summed loss, and its slope."""
    y, weight = units.y, units.weight[:, None]
    if link == "softmax":
        logs = outputs - logsumexp(outputs, axis=-1, keepdims=True)
        return -(weight * logs * y).sum(), weight * (np.exp(logs) - y)
    if link == "sigmoid":
        return (weight * (np.logaddexp(0, outputs) - outputs * y)).sum(), weight * (expit(outputs) - y)
    return 0.5 * (weight * (outputs - y) ** 2).sum(), weight * (outputs - y)


def sampled(groups: np.ndarray, most: int) -> np.ndarray:
    """Indices of the units of whole groups, drawn at random: about `most` of them, or all, and never of fewer groups
    than there are folds."""
    drawn, share = unit(bits(key_of("probe"), groups)), most / len(groups)
    enough = np.unique(drawn)[:FOLDS][-1]  # units of a group have the same number
    return np.flatnonzero((drawn < share) | (drawn <= enough))


def folds_of(units: Units) -> np.ndarray:
    """The fold of each unit. Groups are dealt out in the order of their first unit's target, so that each fold has its
    share of every class."""
    numbers, first = np.unique(units.group, return_index=True)
    shuffled = bits(key_of("folds of a probe"), numbers)
    order = np.lexsort((shuffled, *units.y[first].T))
    of_group = np.empty(len(numbers), int)
    of_group[order] = np.arange(len(numbers)) % FOLDS
    return of_group[np.searchsorted(numbers, units.group)]
