"""Ordered rules on parameter names: the first that matches decides, and a name that none matches is an error."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.errors import BertJaxError

Rules = Sequence[tuple[str, Any]]


def named(params: dict) -> dict[str, Any]:
    """Nested parameters by their names, as in encoder/layers/attention/qkv/kernel."""
    return flatten_dict(params, sep="/")


def decide(rules: Rules, name: str, about: str):
    """
    >>> decide([("bias$", 0.0), ("", 0.01)], "mlm/bias", "weight decay")
    0.0
    """
    for pattern, value in rules:
        if re.search(pattern, name):
            return value
    raise BertJaxError(f"no rule on {about} matches the parameter {name}; add one")


def by_rule(
    params: dict, rules: Rules, about: str, use: Callable[[Any, Any], Any] = lambda value, leaf: value
) -> dict:
    """A tree like `params` of what the rules decide for each, or of `use(decided, parameter)`."""
    flat = {name: use(decide(rules, name, about), leaf) for name, leaf in named(params).items()}
    return unflatten_dict(flat, sep="/")
