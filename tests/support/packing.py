"""Packed rows beside rows of their own."""

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from bert_jax.models.heads import HEADS
from tests.support.gradients import assert_gradients_equal


def assert_packed_equals_separate(layout, lengths=(5, 9, 4)):
    """Texts in one shared row have the outputs of texts apart, and the gradients."""
    random = np.random.RandomState(4)
    flat = {name: 0.3 * random.standard_normal(shape) for name, shape in layout.shapes().items()}
    params = jax.tree.map(np.float32, unflatten_dict(flat, sep="/"))
    total, longest = sum(lengths), max(lengths)
    places = [slice(sum(lengths[:i]), sum(lengths[: i + 1])) for i in range(len(lengths))]
    apart = {
        name: np.zeros((len(lengths), longest), np.int32)
        for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    packed = {
        name: np.zeros((1, total + 2), np.int32)
        for name in ("input_ids", "token_type_ids", "attention_mask", "segment_ids")
    }
    packed["cls_positions"] = np.array([[place.start for place in places]])
    for i, (place, length) in enumerate(zip(places, lengths, strict=True)):
        values = {
            "input_ids": random.randint(1, layout.config.vocab_size, length),
            "token_type_ids": np.arange(length) % max(layout.config.type_vocab_size, 1),
            "attention_mask": 1,
        }
        for name, value in values.items():
            apart[name][i, :length] = packed[name][0, place] = value
        packed["segment_ids"][0, place] = i + 1
    states = random.standard_normal((total, layout.config.hidden_size)).astype(np.float32)

    def of_texts(batch, hidden):
        """[total, ...] of the tokens, text after text."""
        if "segment_ids" in batch:
            return hidden[0, :total]
        return jnp.concatenate([row[:length] for row, length in zip(hidden, lengths, strict=True)])

    def run(batch):
        def loss(params):
            outputs = layout.module.apply({"params": params}, batch)
            hidden = of_texts(batch, outputs["hidden"])
            heads = {
                name: of_texts(batch, outputs[name])
                if HEADS[name].each_token
                else outputs[name].reshape(len(lengths), -1)
                for name in layout.heads
            }
            return (hidden * states).sum() + sum(jnp.sin(logits).sum() for logits in heads.values()), (
                hidden,
                heads,
            )

        (_, outputs), gradients = jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(params))
        return outputs, gradients

    (ours, gradients), (expected, of_expected) = run(packed), run(apart)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), ours, expected)
    assert_gradients_equal(gradients, of_expected)
