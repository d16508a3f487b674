"""Blocks, types of layers and shared layers, against a loop over the layers without scan or remat."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.models import blocks
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.context import Context
from bert_jax.models.dropout import Dropout
from bert_jax.models.elementwise import normalize
from bert_jax.models.encoder import Embeddings, TransformerEncoder, dummy_batch
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.kernels import attention
from bert_jax.models.layer_stack import stack_layers, unroll_layers
from bert_jax.models.layers import FeedForward, SelfAttention
from bert_jax.training.optimizer import check_layer_settings
from bert_jax.training.run_config import OptimizerConfig
from tests.support.gradients import assert_gradients_equal
from tests.support.project import ROOT

CONFIG = EncoderConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=24,
    hidden_dropout_prob=0.0,
)
SEGMENT_IDS = np.array([[1] * 5 + [2] * 7 + [0] * 4, [1] * 16, [0] * 16])
BATCH = {
    "input_ids": np.random.RandomState(0).randint(5, 50, SEGMENT_IDS.shape),
    "token_type_ids": np.zeros_like(SEGMENT_IDS),
    "attention_mask": (SEGMENT_IDS > 0).astype(np.int32),
    "segment_ids": SEGMENT_IDS,
}


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    folder = str(ROOT / "tests/examples/blocks")
    monkeypatch.setattr(blocks, "__path__", [*blocks.__path__, folder])


def params_of(config):
    params = jax.jit(TransformerEncoder(config).init)(jax.random.key(0), dummy_batch())["params"]
    # Far from the initial values, where all layers look alike.
    return jax.tree.map(lambda x: 5 * x + 0.1, jax.device_get(params))


def unrolled(config, params, windows):
    """The hidden states, a layer at a time; layer i has the parameters of its group."""
    hidden = Embeddings(config).apply({"params": params["embeddings"]}, BATCH, False)
    context = Context.from_batch(BATCH)
    for i in range(config.num_hidden_layers):
        layer = jax.tree.map(
            lambda x, i=i: x[i * config.groups // config.num_hidden_layers], params["layers"]
        )

        def norm(name, states, layer=layer):
            return normalize(
                states, layer[name]["scale"], layer[name]["bias"], config.layer_norm_eps, "float32"
            )

        attend = partial(attention.attend, window=windows[i])
        attended = SelfAttention(config).apply({"params": layer["attention"]}, hidden, context, False, attend)
        hidden = norm("attention_norm", hidden + attended)
        fed = FeedForward(config).apply({"params": layer["feed_forward"]}, hidden)
        hidden = norm("feed_forward_norm", hidden + fed)
    return hidden


def assert_equals_loop(config, windows):
    params = params_of(config)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(params["layers"])} == {config.groups}
    target = np.random.RandomState(1).standard_normal((*SEGMENT_IDS.shape, 16)).astype(np.float32)

    def gradient(run):
        def loss(params):
            hidden = run(params) * BATCH["attention_mask"][..., None]
            return (hidden * target).sum(), hidden

        (_, hidden), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
        return hidden, gradients

    hidden, gradients = gradient(lambda params: TransformerEncoder(config).apply({"params": params}, BATCH))
    expected, expected_gradients = gradient(lambda params: unrolled(config, params, windows))
    np.testing.assert_allclose(hidden, expected, atol=1e-5)
    assert_gradients_equal(gradients, expected_gradients)


@pytest.mark.slow
def test_layers_of_alternating_kinds_equal_a_loop():
    assert_equals_loop(CONFIG.replace(block="alternating_windows", remat="full"), [None, 2, None, 2])


@pytest.mark.long  # CI has shared layers in ALBERT and alternating ones above, both against a reference
def test_shared_layers_of_alternating_kinds_equal_a_loop():
    assert_equals_loop(CONFIG.replace(layer_groups=2, block="alternating_windows"), [None, 2, None, 2])


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"block": "alternating_windows"}, {"block": "alternating_windows", "layer_groups": 2}]
)
def test_unrolled_layers_equal_scanned_ones(settings):
    config = CONFIG.replace(**settings)
    params = params_of(config)
    parts = unroll_layers(params)
    assert [name for name in parts if name.startswith("layers_")] == [
        f"layers_{i}" for i in range(config.groups)
    ]
    jax.tree.map(np.testing.assert_array_equal, stack_layers(parts), params)
    scanned, one_by_one = (
        jax.jit(TransformerEncoder(config, unrolled).apply)({"params": given}, BATCH)
        for unrolled, given in ((False, params), (True, parts))
    )
    np.testing.assert_allclose(one_by_one, scanned, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [0, 1])
def test_every_layer_draws_its_own_dropout(groups, monkeypatch):
    class Count(nn.Module):
        config: EncoderConfig

        @nn.compact
        def __call__(self, hidden, context, layer_type, train: bool):
            return hidden + Dropout(0.5)(jnp.full_like(hidden, 50), context.rows, train)

    monkeypatch.setitem(BLOCKS, "count", Count)
    module = TransformerEncoder(CONFIG.replace(block="count", layer_groups=groups))
    params = jax.jit(module.init)(jax.random.key(0), BATCH)
    drawn = jax.jit(lambda key: module.apply(params, BATCH, True, rngs={"dropout": key}))(jax.random.key(1))
    added = np.asarray(drawn) - np.asarray(jax.jit(module.apply)(params, BATCH))
    # Of the four layers, how many added 100 and not 50.
    counts = np.round(np.asarray(added) / 100).astype(int) + 2
    assert set(counts.ravel()) == {0, 1, 2, 3, 4}


def test_rates_by_layer_mean_nothing_where_layers_share_parameters():
    for settings in ({"layer_decay": 0.9}, {"frozen_layers": 1}):
        check_layer_settings(OptimizerConfig(**settings), CONFIG)
        with pytest.raises(BertJaxError, match="2 groups"):
            check_layer_settings(OptimizerConfig(**settings), CONFIG.replace(layer_groups=2))


def test_a_block_is_known_by_its_file():
    with pytest.raises(BertJaxError, match='did you mean "alternating_windows"'):
        CONFIG.replace(block="alternating_window")
    with pytest.raises(BertJaxError, match="layer_groups = 3"):
        CONFIG.replace(layer_groups=3)
