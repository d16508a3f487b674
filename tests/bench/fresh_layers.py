"""A model whose last layers have initial values again, to see how much a training teaches it.

python -m tests.bench.fresh_layers MODEL OUTPUT 2
"""

import sys

import jax

from bert_jax.inference.load import load


def main(source: str, output: str, count: str) -> None:
    model = load(source)
    params = model.params
    initial = jax.device_get(jax.jit(model.layout.init)(jax.random.key(0)))
    kept = model.config.num_hidden_layers - int(count)

    def fresh(path, old, new):
        in_layers = any(getattr(key, "key", "") == "layers" for key in path)
        return jax.numpy.concatenate([old[:kept], new[kept:]]) if in_layers else old

    params = params | {
        "encoder": jax.tree_util.tree_map_with_path(fresh, params["encoder"], initial["encoder"])
    }
    model.with_params(params).save(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
