"""FLOPs and bytes of a step, against counts by hand."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.models.kernels import short_attention
from bert_jax.pod import flops
from bert_jax.pod.compile import bytes_per_device
from bert_jax.tasks.pretrain import PretrainTask
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import abstract_batch, abstract_constants, abstract_state
from bert_jax.training.step import make_step
from tests.support.preflight_configs import settings

# Parameters: words, positions and token types; of each layer 4 D^2 + 2 D F, their biases 4 D + F + D and two norms; the
# embeddings' norm; pooler; the masked LM's transform, norm and bias; next sentence.
PARAMETERS = {"base": 110_106_428, "large": 336_226_108}


# A step of 256 x 512 with 77 targets, times 3 for the backward pass: each layer's 2 (4 D^2 + 2 D F) a token and its
# scores' 4 L D, then the heads.
#   base:  12 x 131,072 x (14,155,776 + 1,572,864) = 24.7397e12; heads 0.9471e12
#   large: 24 x 131,072 x (25,165,824 + 2,097,152) = 85.7622e12; heads 1.2738e12
STEP = {"base": 3 * (24.7397e12 + 0.9471e12), "large": 3 * (85.7622e12 + 1.2738e12)}


@pytest.mark.slow
@pytest.mark.parametrize("size", ["base", "large"])
def test_flops_and_bytes_are_those_by_hand(size):
    config = settings("model.attention=xla", "model.vocab_multiple=1", name=size)
    task, mesh = PretrainTask.from_config(config, ModelDirectories()), make_mesh(config.mesh)
    state, batch = abstract_state(task, config, mesh), abstract_batch(task.features(256, 512), config, mesh)
    assert bytes_per_device(state.params) == 4 * PARAMETERS[size]
    assert bytes_per_device(state.optimizer) == pytest.approx(8 * PARAMETERS[size], rel=1e-6)
    # input_ids, token_type_ids and attention_mask; positions, words and weights of 77 targets; a label and its weight
    assert bytes_per_device(batch) == 256 * 4 * (3 * 512 + 3 * 77 + 2)
    traced = make_step(task, config, mesh).trace(state, batch, abstract_constants(task, config, mesh))
    counted, kernels = flops.count_flops(traced.jaxpr)
    assert counted == pytest.approx(STEP[size], rel=0.001)
    assert kernels == {}


def test_a_kernel_s_flops_are_its_formula():
    B, L, H, K = 2, 256, 4, 64
    shapes = [((B, 3, L, H * K), "bfloat16"), ((B, L), "int32"), ((B, H), "uint32")]
    arguments = [jax.ShapeDtypeStruct(*shape) for shape in shapes]

    def loss(qkv, segment_ids, seeds):
        return (
            short_attention.short_attention(
                qkv, segment_ids, seeds, {}, short_attention.KernelOptions(K, K**-0.5, rate=0.1)
            )
            .astype("float32")
            .sum()
        )

    traced = jax.make_jaxpr(jax.value_and_grad(loss))(*arguments)
    _, kernels = flops.count_flops(traced)
    # A product of all pairs is 2 B H L^2 K: scores and mixing forward; backward the scores again and four gradients.
    assert kernels == {
        "short_attention": 4 * B * H * L * L * K,
        "short_attention_backward": 10 * B * H * L * L * K,
    }


def test_of_branches_the_most_flops_or_their_mean_count_and_the_kernels_of_the_first():
    def times(x, name):
        def kernel(x_ref, out_ref):
            out_ref[...] = jnp.dot(x_ref[...], x_ref[...])

        return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), name=name)(x)

    def run(near, x):
        # False is the first branch of the program.
        return jax.lax.cond(near, lambda x: times(times(x, "near"), "both"), lambda x: times(x, "both"), x)

    product = 2 * 8**3
    traced = jax.make_jaxpr(run)(True, jnp.ones((8, 8)))
    assert flops.count_flops(traced) == (2 * product, {"both": product})
    # Of three layers, one takes the first branch and two take the second.
    mean = pytest.approx(5 / 3 * product)
    assert flops.count_flops(traced, global_share=1 / 3) == (mean, {"both": mean})


def test_what_nobody_needs_does_not_count():
    """As the products of a forward pass that is made again for the sake of others in it."""

    @jax.jit
    def both(x):
        return x @ x, x @ x @ x

    assert flops.count_flops(jax.make_jaxpr(lambda x: both(x)[0])(jnp.ones((8, 8))))[0] == 2 * 8**3


def test_loops_count_as_often_as_they_run():
    def twelve_layers(x):
        return jax.lax.scan(lambda x, _: (x @ x, None), x, None, length=12)[0]

    assert flops.count_flops(jax.make_jaxpr(twelve_layers)(jnp.ones((8, 8))))[0] == 12 * 2 * 8**3
