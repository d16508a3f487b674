"""Ordered rules on parameter names: the first that matches decides, and a name that none matches is an error.

`PARAMETER_RULES` says for every parameter how it is split over the mesh and how the optimizer treats it. A task with
its own parameters has rules for them (`Task.rules`), which are tried first.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import PartitionSpec as P

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS
from bert_jax.models.mesh import FSDP, TENSOR


@dataclass(frozen=True)
class ParameterRule:
    spec: P = P()  # the axes of the mesh over which it is split
    # Whether it has weight decay: as in BERT, all but biases and LayerNorm. LAMB adapts only parameters with it.
    decays: bool = True
    tensors: tuple[int, ...] = ()  # axes that number the tensors stacked in it; LAMB treats each alone
    depth: Literal["embeddings", "layers", "above"] = "above"  # its place in the encoder, or above it
    rate: float = 1.0  # its learning rate, as a multiple of the run's
    matmul_only: bool = False  # read by matrix products alone, which round it to the compute dtype


Rules = Sequence[tuple[str, Any]]

EMBEDDINGS, LAYERS = "encoder/embeddings/", "encoder/layers/"
# A stacked parameter [N, ...] is N tensors, and a fused query, key and value are three: qkv is [N, D, 3, H, K], out
# [N, H, K, D], the feed-forward [N, D, F], or gated [N, D, 2, F], and [N, F, D], words [V, D].
layer_kernel = partial(ParameterRule, tensors=(0,), depth="layers", matmul_only=True)
layer_bias = partial(ParameterRule, decays=False, tensors=(0,), depth="layers")
embedding = partial(ParameterRule, depth="embeddings")
PARAMETER_RULES: list[tuple[str, ParameterRule]] = [
    ("^adapters/", ParameterRule()),
    (EMBEDDINGS + "words$", embedding(P(TENSOR, FSDP))),
    (EMBEDDINGS + "positions$", embedding(P(None, FSDP))),
    (EMBEDDINGS + "token_types$", embedding()),
    (EMBEDDINGS + "norm/(scale|bias)$", embedding(decays=False)),
    ("encoder/distances/table$", embedding()),
    ("encoder/distances/norm/(scale|bias)$", embedding(decays=False)),
    ("encoder/convolution/dense/kernel$", embedding(P(None, FSDP), matmul_only=True)),
    ("encoder/convolution/(dense/bias|scale|bias)$", embedding(decays=False)),
    (LAYERS + "attention/distance_(keys|queries)/kernel$", layer_kernel(P(None, FSDP, TENSOR, None))),
    (LAYERS + "attention/distance_(keys|queries)/bias$", layer_bias(P(None, TENSOR, None))),
    (EMBEDDINGS + "projection/kernel$", embedding(P(None, FSDP), matmul_only=True)),
    (EMBEDDINGS + "projection/bias$", embedding(decays=False)),
    (
        LAYERS + "attention/(qkv|query|key_value)/kernel$",
        layer_kernel(P(None, FSDP, None, TENSOR, None), tensors=(0, 2)),
    ),
    (
        LAYERS + "attention/((qkv|query|key_value)/)?bias$",
        layer_bias(P(None, None, TENSOR, None), tensors=(0, 1)),
    ),
    (LAYERS + "attention/out/kernel$", layer_kernel(P(None, TENSOR, None, FSDP))),
    (LAYERS + "feed_forward/in/kernel$", layer_kernel(P(None, FSDP, TENSOR))),
    (LAYERS + "feed_forward/in/bias$", layer_bias(P(None, TENSOR))),
    (LAYERS + "feed_forward/gated/kernel$", layer_kernel(P(None, FSDP, None, TENSOR), tensors=(0, 2))),
    (LAYERS + "feed_forward/out/kernel$", layer_kernel(P(None, TENSOR, FSDP))),
    (LAYERS + "(attention|feed_forward)/out/bias$", layer_bias()),
    (LAYERS + "(attention|feed_forward)_norm/(scale|bias)$", layer_bias()),
    ("(^|/)encoder/final_norm/(scale|bias)$", ParameterRule(decays=False)),
    (
        "(^|/)((pooler|transform)/dense|(mlm|replaced|replaced_in_context)/transform)/kernel$",
        ParameterRule(P(FSDP, None), matmul_only=True),
    ),
    ("(^|/)(pooler|transform)/norm/(scale|bias)$", ParameterRule(decays=False)),
    ("(^|/)mlm/decoder$", ParameterRule(P(TENSOR, FSDP), matmul_only=True)),
    ("(^|/)mlm/bias$", ParameterRule(P(TENSOR), decays=False)),
    (
        "(^|/)(mlm|replaced|replaced_in_context)/(transform/bias|norm/(scale|bias))$",
        ParameterRule(decays=False),
    ),
    # Weights of about 1, of which each is learnt from the few queries with its token.
    (f"^{QUERY_WEIGHTS}/weight$", ParameterRule(decays=False, rate=50.0)),
    # The last layer of any head, which has few outputs.
    ("^(?!.*encoder/)([a-z_]+/)?[a-z_]+/dense/kernel$", ParameterRule()),
    ("^(?!.*encoder/)([a-z_]+/)?[a-z_]+/dense/bias$", ParameterRule(decays=False)),
]


def params_by_name(params: dict) -> dict[str, Any]:
    """Flatten nested parameters; the keys are names such as encoder/layers/attention/qkv/kernel."""
    return flatten_dict(params, sep="/")


def match_rule(rules: Rules, name: str):
    """Return what the first matching rule says; raise if none matches.

    >>> match_rule([("bias$", 0.0), ("kernel$", 0.01)], "mlm/bias")
    0.0
    """
    for pattern, value in rules:
        if re.search(pattern, name):
            return value
    raise BertJaxError(
        f"no rule matches the parameter {name}; add one to `rules` of the task, or to PARAMETER_RULES in "
        "parameter_rules.py"
    )


def map_with_rules(params: dict, rules: Rules, use: Callable[[Any, str, Any], Any]) -> dict:
    """Apply `use(what the rules decide, name, parameter)` to every parameter; return a tree like `params`."""
    flat = {name: use(match_rule(rules, name), name, leaf) for name, leaf in params_by_name(params).items()}
    return unflatten_dict(flat, sep="/")
