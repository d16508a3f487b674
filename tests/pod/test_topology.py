"""Slices of all kinds of chips."""

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.pod.hlo import Collective
from bert_jax.pod.roofline import sending_seconds
from bert_jax.pod.topology import parse_slice
from bert_jax.training.chips import find_tpu


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v7:4x4", "--topology"),
        ("v5e-16", "v5e:4x4"),
        ("v5p:64", "v5p:2x2x4"),
        ("v4:4x4", "3 sides"),
        ("v6e:3x4", "2x2"),
    ],
)
def test_a_slice_that_is_none_is_refused(name, message):
    with pytest.raises(BertJaxError) as error:
        parse_slice(name)
    assert message in str(error.value)


def test_slices_of_all_kinds():
    counts = {
        "v5e:4x4": (16, 4),
        "v5e:8x8": (64, 16),
        "v4:2x2x4": (16, 4),
        "v5p:4x4x4": (64, 16),
        "v6e:1x1": (1, 1),
        "tpu7x:2x2x2": (8, 2),
    }
    assert {name: (parse_slice(name).chips, parse_slice(name).hosts) for name in counts} == counts
    assert parse_slice("tpu7x:2x2x2").device_count == 16 and parse_slice("v5p:2x2x2").device_count == 8
    # A corner of a slice of v5e has two links until its ends are joined; cubes of v5p have all six.
    assert parse_slice("v5e:8x8").all_reduce_bandwidth == 2 * 50e9
    assert parse_slice("v5e:16x16").all_reduce_bandwidth == 4 * 50e9
    assert parse_slice("v5p:4x4x4").all_reduce_bandwidth == 6 * 100e9
    assert parse_slice("v4:2x2x4").all_reduce_bandwidth == 3 * find_tpu("v4").link


@pytest.mark.parametrize("name", ("v5e:8x8", "v5e:16x16"))
def test_a_ring_uses_two_links_of_a_chip(name):
    """On a closed slice, a sum over all chips uses four."""
    where, size = parse_slice(name), 1e9
    around = sending_seconds(Collective("collective-permute", size, 1, 0, True), where)
    whole = sending_seconds(Collective("all-reduce", size, 1, 0, False), where)
    assert around == size / (2 * where.chip.link)
    share = 2 * (where.chips - 1) / where.chips
    assert whole == pytest.approx(share * around * (2 * where.chip.link) / where.all_reduce_bandwidth)
