"""A loss of the whole batch: every row's other half against those of all rows, the same on every mesh."""

import functools
import json
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.losses.loss import cross_entropy, weighted_loss
from bert_jax.training.gradient import add_row_indices, make_gradient
from bert_jax.training.parameter_rules import params_by_name
from bert_jax.training.sharding import make_mesh, place_batches
from bert_jax.training.state import (
    StepConstants,
    abstract_state,
    get_shardings,
    init_random_params,
    make_constants,
)
from bert_jax.training.step import make_evaluation
from bert_jax.training.task import Task
from tests.support.processes import run_on_eight_devices
from tests.support.tiny_pretraining import Batches, tiny_pretraining

pytestmark = pytest.mark.ci

# The mesh, and the number of microbatches; the last is measured in CI, the others by hand.
CUBE = "2 x 2 x 2"
MESHES = {"one device": (1, {}), "data 8": (8, {}), "fsdp 8": (8, {"data": 1, "fsdp": 8}),
          CUBE: (8, {"fsdp": 2, "tensor": 2})}  # fmt: skip
OTHERS = (("one device", 4), ("data 8", 1), ("data 8", 4), ("fsdp 8", 1))


@dataclass(frozen=True)
class Matching(Task):
    """Which second half belongs to a first half? The other rows' are the wrong answers."""

    whole_batch = True

    def outputs(self, params, batch, constants=None, key=None):
        halves = [
            batch | {"attention_mask": batch["attention_mask"] * (batch["token_type_ids"] == half)}
            for half in (0, 1)
        ]
        keys = (None, None) if key is None else jax.random.split(key)
        pooled = [super(Matching, self).outputs(params, *args)["pooled"]
                  for args in zip(halves, (None, None), keys, strict=True)]  # fmt: skip
        return {"first": pooled[0], "second": pooled[1]}

    def losses(self, outputs, batch):
        first, second = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in outputs.values())
        labels = jnp.arange(len(first))
        return {"matching_loss": cross_entropy(20 * first @ second.T, labels, jnp.ones(len(first)))}

    def scores(self, outputs, batch):
        first, second = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in outputs.values())
        right = (first @ second.T).argmax(-1) == jnp.arange(len(first))
        return {"accuracy": weighted_loss(right.astype(jnp.float32), jnp.ones(len(first)))}

    def predictions(self, outputs, batch):
        return outputs["first"]


def matching(steps: int = 4, **changes):
    task, config = tiny_pretraining(steps, **changes)
    assert task.layout.config.hidden_dropout_prob > 0
    return Matching(task.layout), config


def key():
    return jax.random.key(7)


def plain() -> dict:
    """By jax.grad of the loss of all rows, on one device."""
    task, config = matching()
    params, batch = initial_params(), Batches().whole(0)

    def loss(params):
        return task.losses(task.outputs(params, add_row_indices(batch), {}, key()), batch)[
            "matching_loss"
        ].mean

    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    outputs = jax.jit(lambda params: task.outputs(params, batch))(params)
    evaluation = {
        "loss": float(task.losses(outputs, batch)["matching_loss"].mean),
        "first": outputs["first"].tolist(),
    }
    return as_json(value, gradients) | {"evaluation": evaluation}


def by_step(devices: int, **changes) -> dict:
    """By the gradient of a training step."""
    task, config, mesh, params, batch = on(devices, **changes)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
    gradient = make_gradient(task, config, mesh, shardings)
    gradients, measured = jax.jit(lambda *given: gradient(*given, StepConstants(0, 0, {})))(
        params, batch, key()
    )
    assert measured["tokens"] == batch["attention_mask"].sum()
    return as_json(measured["losses"]["matching_loss"].mean, gradients)


def by_evaluation(devices: int, **changes) -> dict:
    task, config, mesh, params, batch = on(devices, **changes)
    constants = make_constants(task, config, mesh)
    measured, first = make_evaluation(task, config, mesh)(params, batch, constants)
    return {"loss": float(measured["losses"]["matching_loss"].mean), "first": first.tolist()}


@functools.cache
def initial_params() -> dict:
    return jax.device_get(jax.jit(lambda: init_random_params(*matching()))())


def on(devices: int, **changes):
    task, config = matching(**changes)
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    shardings = get_shardings(abstract_state(task, config, mesh)).params
    params = jax.device_put(initial_params(), shardings)
    return task, config, mesh, params, next(place_batches(Batches().batches(0, 1, 0, 1), mesh, 32))


def as_json(loss, gradients) -> dict:
    return {
        "loss": float(loss),
        "gradients": {name: np.asarray(g).tolist() for name, g in params_by_name(gradients).items()},
    }


def assert_equals_plain(results, mesh: str, accumulate: int) -> None:
    expected, ours = results["plain"], results[f"{mesh}, {accumulate}"]
    assert ours["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    largest = max(np.abs(gradient).max() for gradient in expected["gradients"].values())
    assert largest > 0.1
    for name, gradient in expected["gradients"].items():
        np.testing.assert_allclose(ours["gradients"][name], gradient, atol=1e-6 * largest, err_msg=name)


def test_loss_gradients_and_evaluation_are_those_of_the_whole_batch():
    results = run_on_eight_devices(__name__, "some")
    assert_equals_plain(results, CUBE, 4)
    ours, expected = results["evaluation"], results["plain"]["evaluation"]
    assert ours["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    np.testing.assert_allclose(ours["first"], expected["first"], atol=1e-6)


@pytest.mark.long
def test_other_meshes_have_the_loss_and_the_gradients_of_the_whole_batch():
    results = run_on_eight_devices(__name__, "more")
    for mesh, accumulate in OTHERS:
        assert_equals_plain(results, mesh, accumulate)


def main() -> None:
    results: dict = {"plain": plain()}
    for name, accumulate in OTHERS if sys.argv[1] == "more" else [(CUBE, 4)]:
        devices, changes = MESHES[name]
        results[f"{name}, {accumulate}"] = by_step(devices, gradient_accumulation_steps=accumulate, **changes)
    if sys.argv[1] == "some":
        results["evaluation"] = by_evaluation(MESHES[CUBE][0], **MESHES[CUBE][1])
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
