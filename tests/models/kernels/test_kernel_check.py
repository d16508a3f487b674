"""The check of kernels finds what is planted in one, and "auto" then takes XLA's and says so."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from bert_jax.models.kernels import flash_attention, flash_tiles, kernel_check, kernel_choice
from bert_jax.models.kernels.kernel_check import check_kernel
from bert_jax.models.kernels.kernel_choice import KernelChoices, choose_kernel, kernels_of
from bert_jax.models.kernels.kernel_table import KERNELS
from bert_jax.models.kernels.request import AttentionRequest
from tests.support.cases import long_except

PLAIN = AttentionRequest("gpu", 128, 2, 32, "bfloat16", window=None, dropout=0.1)
WINDOW = replace(PLAIN, window=40)
BIAS, DISTANCES = replace(PLAIN, terms=("bias",)), replace(PLAIN, terms=("keys", "queries"))


def with_segments(change):
    """A kernel that reads other sequences than are in the rows."""

    def fault(run):
        def wrong(qkv, context, request, seeds, **options):
            ids = change(context.segment_ids)
            return run(
                qkv,
                replace(context, attention_mask=jnp.sign(ids), segment_ids=ids),
                request,
                seeds,
                **options,
            )

        return wrong

    return fault


def with_request(**changes):
    def fault(run):
        return lambda qkv, context, request, *rest, **options: run(
            qkv, context, replace(request, **changes), *rest, **options
        )

    return fault


def without_seeds(run):
    return lambda qkv, context, request, seeds, **options: run(qkv, context, request, 0 * seeds, **options)


def without_keys_of_distances(run):
    def wrong(qkv, context, *rest, **options):
        terms = replace(context.relative, keys=0 * context.relative.keys)
        return run(qkv, replace(context, relative=terms), *rest, **options)

    return wrong


def with_gradient(part: int):
    """A kernel whose gradient of queries, keys or values is a tenth too large."""

    def fault(run):
        @jax.custom_vjp
        def same(qkv):
            return qkv

        same.defvjp(lambda qkv: (qkv, None), lambda _, gradient: (gradient.at[:, :, part].multiply(1.1),))
        return lambda qkv, *rest, **options: run(same(qkv), *rest, **options)

    return fault


def of_other_head(run):
    return lambda qkv, *rest, **options: jnp.roll(run(qkv, *rest, **options), 32, axis=-1)


def one_not_finite(run):
    return lambda *inputs, **options: run(*inputs, **options).at[0, 5, 3].set(jnp.nan)


def refused(run):
    def wrong(*_, **__):
        raise RuntimeError("Mosaic failed")

    return wrong


def scale_too_large(patch):
    scale_of = flash_attention.scale_of
    patch.setattr(flash_attention, "scale_of", lambda *inputs: 1.2 * scale_of(*inputs))


def last_block_left_out(patch):
    visited = flash_attention.visited_blocks
    patch.setattr(
        flash_attention, "visited_blocks", lambda *inputs, **options: visited(*inputs, **options).clip(max=1)
    )


def no_gradient_of_the_bias(patch):
    patch.setattr(flash_attention, "bias_gradient", lambda row, *_: jnp.zeros_like(row.bias))


def other_share(patch):
    mask = flash_tiles.pair_keep_mask
    patch.setattr(
        flash_tiles, "pair_keep_mask", lambda queries, keys, seed, rate: mask(queries, keys, seed, 2 * rate)
    )


def seed_not_read(patch):
    mask = flash_tiles.pair_keep_mask
    patch.setattr(
        flash_tiles, "pair_keep_mask", lambda queries, keys, seed, rate: mask(queries, keys, 0 * seed, rate)
    )


# What is planted: the request, a change of `run` or of a function of the kernel's, and what is said.
WRONG_RUNS = {
    "all see all": (PLAIN, with_segments(jnp.ones_like), "its values"),
    "padding attends": (PLAIN, with_segments(lambda ids: jnp.where(ids, ids, 2)), "its values"),
    "packs are one token off": (PLAIN, with_segments(lambda ids: jnp.roll(ids, 1, axis=1)), "its values"),
    "rows are swapped": (PLAIN, with_segments(lambda ids: ids[::-1]), "its values"),
    "the window is one longer": (WINDOW, with_request(window=41), "its values"),
    "no dropout": (PLAIN, with_request(dropout=0.0), "its values"),
    "one seed for all": (PLAIN, without_seeds, "its values"),
    "no keys of distances": (DISTANCES, without_keys_of_distances, "its values"),
    "the gradient of queries": (PLAIN, with_gradient(0), "its gradients"),
    "the gradient of values": (PLAIN, with_gradient(2), "its gradients"),
    "heads are swapped": (PLAIN, of_other_head, "its values"),
    "a number that is none": (PLAIN, one_not_finite, "not all finite"),
    "the compiler refuses": (PLAIN, refused, "it does not run (Mosaic failed)"),
}
WRONG_PARTS = {
    "a larger scale": (PLAIN, scale_too_large, "its values"),
    "a block is left out": (PLAIN, last_block_left_out, "its values"),
    "no gradient of the bias": (BIAS, no_gradient_of_the_bias, "its gradients"),
    "another share": (PLAIN, other_share, "its dropout keeps 80"),
    "the seed is not read": (PLAIN, seed_not_read, "the same for each seed"),
}
# The others are found in the way of one of these.
ORDINARY = [
    "padding attends", "packs are one token off", "the window is one longer", "one seed for all", "another share",
    "the gradient of values", "no gradient of the bias", "a block is left out", "the compiler refuses",
]  # fmt: skip


@pytest.fixture
def here(monkeypatch):
    """The device of the requests is this machine's; nothing is kept."""
    monkeypatch.setattr(kernel_choice, "is_here", lambda request: True)
    monkeypatch.setattr(kernel_choice, "kept_folder", lambda: None)


@pytest.mark.ci
@pytest.mark.parametrize("name", long_except([*WRONG_RUNS, *WRONG_PARTS], ORDINARY))
def test_what_is_planted_is_found_and_xla_s_is_taken(name, here, monkeypatch, capsys):
    request, plant, output = (WRONG_RUNS | WRONG_PARTS)[name]
    if name in WRONG_PARTS:
        plant(monkeypatch)
    else:
        monkeypatch.setitem(KERNELS, "flash", replace(KERNELS["flash"], run=plant(KERNELS["flash"].run)))
    with kernels_of(KernelChoices(trains=True)):
        assert [choose_kernel("auto", request) for _ in range(2)] == ["xla"] * 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("attention: xla, flash is not taken: ") and output in line


@pytest.mark.ci
@pytest.mark.parametrize(
    "request_",
    [WINDOW, pytest.param(BIAS, marks=pytest.mark.long), DISTANCES],
    ids=["window", "bias", "distances"],
)
def test_a_kernel_that_is_right_is_found_right(request_):
    found = check_kernel(KERNELS["flash"], request_)
    assert found.fault is None and max(found.values, found.gradients) < kernel_check.MAX_DIFFERENCE / 2
    assert found.kept == pytest.approx(0.9, abs=0.01)
