"""The head a task reads, as a compiled function."""

import functools

import jax

from bert_jax.errors import BertJaxError
from bert_jax.models.config import EncoderConfig
from bert_jax.models.heads import HEADS, Bert


def need(model, head: str, what: str) -> None:
    if head not in model.layout.heads:
        has = ", ".join(model.layout.heads) or "none"
        raise BertJaxError(
            f'{what} needs the head "{head}", and this model\'s heads are: {has}; open a directory that has it '
            f'(transformers calls it Bert{HEADS[head].architecture}), or train one from load(path, head="{head}")'
        )


@functools.lru_cache(maxsize=16)
def head_program(config: EncoderConfig, head: str, labels: int):
    """(params, batch) -> the head's logits."""
    module = Bert(config, (head,), labels, HEADS[head].pooled)

    def run(params, batch):
        return module.apply({"params": params}, batch)[head]

    return jax.jit(run)
