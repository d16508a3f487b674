"""A training loop of your own: the model's module is a function of its parameters, and optax does the rest."""

import jax
import numpy as np
import optax

import bert_jax

texts = ["a fine film", "dull and long", "what a joy", "a waste of time"] * 8
labels = np.array([1, 0, 1, 0] * 8)

model = bert_jax.load("model", head="classify", labels=("bad", "good"))
params, optimizer = model.params, optax.adamw(5e-5)
state = optimizer.init(params)


@jax.jit
def step(params, state, batch, labels, key):
    def loss_of(params):
        outputs = model.module.apply({"params": params}, batch, True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(outputs["classify"], labels).mean()

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


for epoch in range(5):
    for n, batch in enumerate(model.tokenizer.batches(texts, 8, max_length=32)):
        key = jax.random.fold_in(jax.random.key(epoch), n)
        params, state, loss = step(params, state, batch, labels[8 * n : 8 * n + 8], key)
    print(f"epoch {epoch}: loss {loss:.3f}")

model = model.with_params(params)
model.save("trained")
