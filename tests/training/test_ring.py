"""Sums that go around a ring of devices, and the order of a slice's devices in it."""

import json
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from bert_jax.models.data_sharded import sum_parts
from bert_jax.training.run_config import MeshConfig
from bert_jax.training.sharding import make_mesh, mesh_warnings, order_in_ring
from tests.support.processes import run_on_eight_devices

# Shapes whose parts are halved along the axis of the parts, along another one, or not at all.
SHAPES = {"0": (16, 3), "1": (3, 16, 5), "2": (2, 3, 8), "0 of an odd one": (24, 3), "0 of ones": (8,)}


def differences(dtype) -> dict:
    """How far the sums are from those of numpy: the most, over all shards, for each shape."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    found = {}
    for name, shape in SHAPES.items():
        axis = int(name[0])
        values = np.random.default_rng(0).normal(size=(8, *shape)).astype(np.float32)
        run = jax.shard_map(
            lambda x, axis=axis: sum_parts(x[0], axis, lambda sums: sums.astype(dtype)),
            mesh=mesh,
            in_specs=P("data"),
            out_specs=P(*[None] * axis, "data"),
            check_vma=False,
        )
        found[name] = float(np.abs(np.asarray(jax.jit(run)(values)) - values.sum(0)).max())
    return found


@pytest.mark.slow
def test_every_device_gets_its_part_of_the_sum():
    found = run_on_eight_devices(__name__)
    assert set(found["float32"]) == set(SHAPES)
    assert max(found["float32"].values()) < 1e-5
    assert all(1e-5 < most < 0.1 for most in found["bfloat16"].values())


def flat_slice(width: int, height: int, depth: int = 1) -> list:
    return [
        SimpleNamespace(platform="tpu", coords=(x, y, z))
        for z in range(depth)
        for y in range(height)
        for x in range(width)
    ]


@pytest.mark.parametrize("sides", ((2, 2), (2, 4), (4, 2), (4, 4), (4, 8), (8, 8), (16, 16)))
def test_each_chip_of_the_ring_is_linked_to_the_next(sides):
    devices = flat_slice(*sides)
    ring = order_in_ring(devices)
    assert sorted(map(id, ring)) == sorted(map(id, devices))
    for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
        assert sum(abs(a - b) for a, b in zip(one.coords, other.coords, strict=True)) == 1


@pytest.mark.parametrize("sides", ((4, 4, 4), (1, 1), (1, 2), (4, 3)))
def test_other_slices_have_no_ring(sides):
    assert order_in_ring(flat_slice(*sides)) == []


def test_devices_that_are_no_tpus_have_no_ring():
    assert order_in_ring(jax.devices()) == []


def test_a_ring_of_whole_parameters_has_no_effect():
    config = MeshConfig(gradient_ring=True)
    (line,) = mesh_warnings(config, make_mesh(config))
    assert line.startswith("mesh.gradient_ring has no effect")


if __name__ == "__main__":
    json.dump({name: differences(name) for name in ("float32", "bfloat16")}, sys.stdout)
