"""A regression on frozen features is the best one, and chooses its penalty by examples it did not see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.randomness import random_bits, random_key, to_unit_floats
from bert_jax.predictions.linear_model import (
    FOLDS,
    LinearModel,
    Units,
    fit_linear_model,
    folds_of,
    loss_and_gradient,
    regress,
    sample_groups,
)

RNG = np.random.default_rng(0)


def units(x, y, group=None) -> Units:
    y = np.asarray(y, float).reshape(len(x), -1)
    return Units(np.asarray(x, float), y, np.ones(len(x)), np.arange(len(x)) if group is None else group)


def classes(count: int = 90, signal: float = 1.0) -> Units:
    numbers = RNG.permutation(np.arange(count) % 3)
    return units(RNG.normal(size=(count, 6)) + signal * np.eye(6)[numbers] * 3, np.eye(3)[numbers])


def zero(given: Units) -> LinearModel:
    return LinearModel(np.zeros((given.x.shape[1], given.y.shape[1])), np.zeros(given.y.shape[1]))


def test_the_fit_to_numbers_is_that_of_the_normal_equations():
    x = RNG.normal(size=(40, 5))
    given = units(x, x @ RNG.normal(size=5) + RNG.normal(size=40))
    model = regress(given, "identity", 2.0, zero(given))
    centred = x - x.mean(0)
    kernel = np.linalg.solve(centred.T @ centred + 2 * np.eye(5), centred.T @ (given.y - given.y.mean()))
    np.testing.assert_allclose(model.kernel, kernel, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_no_other_fit_has_a_lower_loss(link):
    given = classes()
    model = regress(given, link, 0.5, zero(given))

    def objective(kernel, bias):
        logits = given.x @ kernel + bias
        logs = jax.nn.log_softmax(logits) if link == "softmax" else jax.nn.log_sigmoid(logits)
        losses = logs * given.y + (0 if link == "softmax" else jax.nn.log_sigmoid(-logits) * (1 - given.y))
        return -losses.sum() + 0.25 * (kernel**2).sum()

    slopes = jax.grad(objective, (0, 1))(jnp.asarray(model.kernel), jnp.asarray(model.bias))
    assert max(np.abs(slope).max() for slope in slopes) < 0.02, "it is convex: where it is flat it is lowest"


@pytest.mark.parametrize("link", ["softmax", "sigmoid", "identity"])
def test_slopes_are_those_of_the_losses(link):
    given, outputs, step = classes(12), RNG.normal(size=(12, 3)), RNG.normal(size=(12, 3)) * 1e-5
    (low, slope), (high, _) = (loss_and_gradient(link, outputs + sign * step, given) for sign in (-1, 1))
    assert high - low == pytest.approx(
        2 * (loss_and_gradient(link, outputs, given)[1] * step).sum(), rel=1e-4
    )
    assert slope.shape == outputs.shape


def test_features_that_say_nothing_get_the_shares_of_the_classes():
    numbers = (np.arange(200) % 4 == 0).astype(int)
    model = fit_linear_model(units(RNG.normal(size=(200, 50)), np.eye(2)[numbers]), "softmax")
    logits = model(RNG.normal(size=(500, 50)))
    likely = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    assert likely.mean() == pytest.approx(0.25, abs=0.05)
    assert likely.std() < 0.12, "a weak penalty would make it sure of what is noise"


def test_features_that_say_everything_are_used():
    given = classes(signal=4.0)
    likely = fit_linear_model(given, "softmax")(given.x)
    assert (likely.argmax(1) == given.y.argmax(1)).all()


def test_the_unit_of_numbers_and_of_features_does_not_matter():
    x = RNG.normal(size=(60, 4))
    y = x[:, 0] + RNG.normal(size=60) * 0.3
    plain = fit_linear_model(units(x, y), "identity")(x)
    other = fit_linear_model(units(x * 1e-3 + 7, y * 1e4 - 5), "identity")(x * 1e-3 + 7)
    np.testing.assert_allclose((other + 5) / 1e4, plain, atol=1e-3)


def test_a_sample_of_long_texts_has_a_group_for_each_fold():
    groups = np.repeat(np.arange(12), 1000)
    drawn = to_unit_floats(random_bits(random_key("probe"), np.arange(12)))
    kept = groups[sample_groups(groups, 100)]
    assert sorted(set(kept)) == sorted(np.argsort(drawn)[:FOLDS]) and len(kept) == 1000 * FOLDS
    assert sample_groups(np.array([7, 7, 8]), 1).tolist() == [0, 1, 2], "fewer groups than folds"
    many = np.arange(5000)
    kept = sample_groups(many, 100)
    np.testing.assert_array_equal(
        kept, np.flatnonzero(to_unit_floats(random_bits(random_key("probe"), many)) < 100 / 5000)
    )
    assert len(kept) > FOLDS


def test_folds_divide_no_group_and_have_every_class():
    numbers = np.repeat(np.arange(3), 10)
    group = np.arange(30) // 2  # two units each
    folds = folds_of(units(np.zeros((30, 1)), np.eye(3)[numbers], group))
    assert all(len(set(folds[group == number])) == 1 for number in range(15))
    assert all(set(numbers[folds == fold]) == {0, 1, 2} for fold in range(FOLDS))
