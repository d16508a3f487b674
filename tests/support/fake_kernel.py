"""A kernel that is right, quick to compile on a CPU, and has the times that a test gives it.

As a program: one of two processes that choose a kernel together, and print what they take.
"""

import json
import socket
import sys
from dataclasses import replace
from functools import partial

from bert_jax.models.kernels import kernel_choice
from bert_jax.models.kernels.flash_tiles import hash_kept_pairs
from bert_jax.models.kernels.kernel_check import attend_by_definition
from bert_jax.models.kernels.kernel_table import KERNELS, AttentionKernel
from bert_jax.models.kernels.request import AttentionRequest

REQUEST = AttentionRequest("cpu", 16, 2, 8, "float32", window=None, dropout=0.1, rows=4)


def run(qkv, context, request, seeds, interpret=False, factor=1.0):
    ids = context.attention_mask if context.segment_ids is None else context.segment_ids
    context = replace(context, segment_ids=ids)
    return factor * attend_by_definition(qkv, context, request, seeds, hash_kept_pairs).astype(qkv.dtype)


def plant(patch, seconds=(1, 2), factor: float = 1.0) -> None:
    """Put it in the place of `short` on this machine; `seconds` are its and those of XLA's."""
    fake = AttentionKernel(partial(run, factor=factor), lambda request: None, False, True, hash_kept_pairs)
    patch.setitem(KERNELS, "short", fake)
    patch.setattr(kernel_choice, "is_here", lambda request: True)
    patch.setattr(kernel_choice, "time_kernels", lambda names, *_: list(seconds))


def main(differs: str, index: int) -> None:
    import pytest

    from bert_jax.training.processes import join_processes

    facts = json.loads(differs)
    with pytest.MonkeyPatch.context() as patch, join_processes(facts["coordinator"], 2, index):
        plant(patch, facts["seconds"][index], 1.2 if facts.get("wrong") == index else 1.0)
        choices = kernel_choice.KernelChoices(trains=True)
        if facts.get("recorded") and index == 0:
            choices.recorded[kernel_choice.key_of(REQUEST, True)] = {"kernel": "xla", "reason": "as before"}
        with kernel_choice.kernels_of(choices):
            print(kernel_choice.choose_kernel("auto", REQUEST))


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return listening.getsockname()[1]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
