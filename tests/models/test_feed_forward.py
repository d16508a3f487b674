"""A feed-forward layer computed in parts of the tokens, as on v5e chips, beside the same in one."""

import jax
import numpy as np
import pytest

from bert_jax.models import layers
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.layers import FeedForward, count_parts
from bert_jax.models.mesh import AXES
from tests.support.gradients import assert_gradients_equal

CONFIG = EncoderConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
)


@pytest.mark.slow
@pytest.mark.parametrize("gated", [False, True])
def test_parts_give_the_result_and_the_gradients_of_the_whole(monkeypatch, gated):
    module = FeedForward(CONFIG.replace(gated=gated))
    hidden, target = np.random.RandomState(0).standard_normal((2, 3, 8, 16)).astype(np.float32)
    params = jax.device_get(jax.jit(module.init)(jax.random.key(0), hidden))
    params = jax.tree.map(lambda x: 5 * x + 0.1, params)

    def loss(params, hidden):
        fed = module.apply(params, hidden)
        return (fed * target).sum(), fed

    found = []
    for parts in (1, 4):
        monkeypatch.setattr(layers, "count_parts", lambda shape, width, dtype, parts=parts: parts)
        step = jax.value_and_grad(loss, (0, 1), has_aux=True)
        assert ("concatenate" in str(jax.make_jaxpr(step)(params, hidden))) == (parts > 1)
        found.append(jax.jit(step)(params, hidden))
    ((_, fed), gradients), ((_, fed_in_parts), gradients_in_parts) = found
    np.testing.assert_allclose(fed_in_parts, fed, atol=1e-5)
    assert_gradients_equal(gradients_in_parts, gradients)


@pytest.mark.parametrize(
    ("rows", "length", "mesh", "parts"),
    [
        (16, 128, (16, 1, 1), 1),
        (16, 512, (16, 1, 1), 2),
        (16, 512, (8, 2, 1), 1),
        (16, 512, (8, 1, 2), 1),
        (32, 512, (16, 1, 1), 4),  # 3 parts would be enough, but do not divide a row
        (64, 512, (16, 1, 1), 1),  # 8 parts were not tried
        (64, 1, (16, 1, 1), 1),
    ],
)
def test_parts_fit_on_the_chip(monkeypatch, rows, length, mesh, parts):
    monkeypatch.setattr(layers, "device_kind", lambda: "TPU v5 lite")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh(mesh, AXES)):
        assert count_parts((rows, length, 768), 3072, "bfloat16") == parts
        monkeypatch.undo()
        assert count_parts((rows, length, 768), 3072, "bfloat16") == 1
