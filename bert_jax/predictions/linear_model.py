"""The best linear function of frozen features: a regularised regression, fitted in seconds.

Cross-validation chooses its penalty.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from threadpoolctl import threadpool_limits

from bert_jax.data.randomness import random_bits, random_key, to_unit_floats

# From outputs to targets: one of several classes, any number of labels, or numbers.
Link = Literal["softmax", "sigmoid", "identity"]
# The strongest first: each solution is where the search for the next one starts.
PENALTIES = 10.0 ** np.arange(2, -2.5, -0.5)
FOLDS = 5
SPREAD = 10.0  # the mean squared distance of scaled features from their mean, see `fit_linear_model`
MAX_UNITS = 50_000  # units to fit to; more would improve the fit by little, and slow it down by much
MOST_TRIED = 4_000  # units that choose the penalty


@dataclass(frozen=True)
class LinearModel:
    kernel: np.ndarray  # [D, outputs]
    bias: np.ndarray  # [outputs]
    penalties: int = 0  # its penalty is the last of this many strongest PENALTIES

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return features @ self.kernel + self.bias


@dataclass(frozen=True)
class Units:
    """The training data: features [N, D], targets [N, outputs] (one-hot for a class), and the weight of each unit.

    Units of a group, such as the words of a text, are all in the same fold.
    """

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    group: np.ndarray

    def __getitem__(self, kept) -> "Units":
        return Units(self.x[kept], self.y[kept], self.weight[kept], self.group[kept])


# Between so many small products, threads lose more by waiting for one another than they gain: with two, 400 texts took
# 9.4 s instead of 0.4, and 50,000 took twice as long.
@threadpool_limits.wrap(limits=1, user_api="blas")
def fit_linear_model(units: Units, link: Link, strongest: int = 0) -> LinearModel:
    """Fit with the best penalty or, if `strongest` is given, with the last of that many strongest penalties."""
    units = units[sample_groups(units.group, MAX_UNITS)]
    # Numbers are standardised: their distances from the mean, in standard deviations.
    mean, deviation = (units.y.mean(0), units.y.std(0) or 1.0) if link == "identity" else (0.0, 1.0)
    centre = units.x.mean(0)
    # The mean squared distance from the centre becomes SPREAD, so that penalties mean the same for any features.
    scale = np.sqrt(((units.x - centre) ** 2).sum(1).mean() / SPREAD) or 1.0
    units = replace(units, x=(units.x - centre) / scale, y=(units.y - mean) / deviation)
    if not strongest:
        tried = units[sample_groups(units.group, MOST_TRIED)]
        strongest = 1 + int(np.argmin(out_of_fold(tried, link)))
    model = fit_each(units, link, PENALTIES[:strongest])[-1]
    kernel = model.kernel * deviation / scale
    return LinearModel(kernel, model.bias * deviation + mean - centre @ kernel, strongest)


def out_of_fold(units: Units, link: Link) -> np.ndarray:
    """Return the summed loss of each penalty in cross-validation, with fits to the other folds."""
    folds, losses = folds_of(units), np.zeros(len(PENALTIES))
    for fold in np.unique(folds):
        inside = units[folds == fold]
        for n, model in enumerate(fit_each(units[folds != fold], link, PENALTIES)):
            losses[n] += loss_and_gradient(link, model(inside.x), inside)[0]
    return losses


def fit_each(units: Units, link: Link, penalties: np.ndarray) -> list[LinearModel]:
    """Return the fit with each penalty."""
    outputs = units.y.shape[1]
    model = LinearModel(np.zeros((units.x.shape[1], outputs)), np.zeros(outputs))
    return [model := regress(units, link, penalty, model) for penalty in penalties]


def regress(units: Units, link: Link, penalty: float, start: LinearModel) -> LinearModel:
    """Minimise the sum of the losses plus `penalty` times half the squared kernel, starting at `start`."""
    outputs = units.y.shape[1]

    def unpacked(flat):
        return LinearModel(flat[:-outputs].reshape(-1, outputs), flat[-outputs:])

    def objective(flat):
        model = unpacked(flat)
        loss, slope = loss_and_gradient(link, model(units.x), units)
        kernel = units.x.T @ slope + penalty * model.kernel
        return loss + penalty / 2 * (model.kernel**2).sum(), np.append(kernel, slope.sum(0))

    return unpacked(minimize(objective, np.append(start.kernel, start.bias), jac=True, method="L-BFGS-B").x)


def loss_and_gradient(link: Link, outputs: np.ndarray, units: Units) -> tuple[float, np.ndarray]:
    """Return the summed loss, and its gradient with respect to the outputs."""
    y, weight = units.y, units.weight[:, None]
    if link == "softmax":
        logs = outputs - logsumexp(outputs, axis=-1, keepdims=True)
        return -(weight * logs * y).sum(), weight * (np.exp(logs) - y)
    if link == "sigmoid":
        return (weight * (np.logaddexp(0, outputs) - outputs * y)).sum(), weight * (expit(outputs) - y)
    return 0.5 * (weight * (outputs - y) ** 2).sum(), weight * (outputs - y)


def sample_groups(groups: np.ndarray, most: int) -> np.ndarray:
    """Return the indices of the units of whole groups, drawn at random: about `most` units, or all if there are fewer.

    There are never fewer groups than folds, unless the data has fewer.
    """
    drawn, share = to_unit_floats(random_bits(random_key("probe"), groups)), most / len(groups)
    enough = np.unique(drawn)[:FOLDS][-1]  # all units of a group draw the same number
    return np.flatnonzero((drawn < share) | (drawn <= enough))


def folds_of(units: Units) -> np.ndarray:
    """Return the fold of each unit. Groups are dealt out in the order of their first unit's target, so that each fold
    has its share of every class."""
    numbers, first = np.unique(units.group, return_index=True)
    shuffled = random_bits(random_key("folds of a probe"), numbers)
    order = np.lexsort((shuffled, *units.y[first].T))
    group_folds = np.empty(len(numbers), int)
    group_folds[order] = np.arange(len(numbers)) % FOLDS
    return group_folds[np.searchsorted(numbers, units.group)]
