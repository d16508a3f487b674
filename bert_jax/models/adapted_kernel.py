"""The product of dense layers, and the stand-in for a kernel that has an adapter.

An adapter (LoRA) adds the product of two narrow matrices to a frozen kernel; DoRA also scales the result. The stand-in
takes the place of the kernel among the parameters, so layers do not know whether they have adapters.
"""

import math
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.dropout import apply_dropout
from bert_jax.models.einsum import mixed_einsum


@flax.struct.dataclass
class AdaptedKernel:
    """A kernel [*inputs, *outputs] of which some blocks of outputs, of equal width, have adapters.

    The kernel is the first field, because Flax compares the shape of the first array with that of the parameter.
    """

    kernel: Any
    a: Any  # [D, M, R] for M blocks; with an adapter for each row, [S, D, M, R] for S adapters
    b: Any  # [M, R, width of a block]; with an adapter for each row, [S, M, R, width of a block]
    magnitude: Any = None  # [M, width of a block], of DoRA
    chosen: Any = None  # [B], the adapter of each row
    rows: Any = None  # [B], which the random numbers of dropout depend on
    dropout_key: Any = None
    blocks: tuple[int, ...] = flax.struct.field(pytree_node=False, default=(0,))
    num_blocks: int = flax.struct.field(pytree_node=False, default=1)
    scale: float = flax.struct.field(pytree_node=False, default=1.0)
    dropout: float = flax.struct.field(pytree_node=False, default=0.0)

    def adapt(self, states, out, dtype: str):
        """Return the product `out` [..., *outputs] of states [..., D] and the kernel, changed by the adapter."""
        rest = "efgh"[: states.ndim - 1]
        if self.dropout_key is not None and states.ndim > 2:  # distances, [N, D], belong to no row
            states = apply_dropout(states, self.dropout, self.dropout_key, self.rows)
        a, b = self.a.reshape(*self.a.shape[:-2], -1), self.scale * self.b
        row = ""
        if self.chosen is not None:
            a, b, row = a[self.chosen], b[self.chosen], rest[0]
        narrow = mixed_einsum(f"{rest}d,{row}dr->{rest}r", states, a, dtype, dtype)
        parts = jnp.split(narrow, len(self.blocks), axis=-1)
        wide = out.reshape(*states.shape[:-1], self.num_blocks, -1)
        columns = [wide[..., block, :] for block in range(self.num_blocks)]
        for number, block in enumerate(self.blocks):
            up = b[..., number, :, :]
            columns[block] += mixed_einsum(f"{rest}r,{row}ro->{rest}o", parts[number], up, dtype, out.dtype)
            if self.magnitude is not None:
                columns[block] *= self.dora_factor(number).astype(out.dtype)
        return jnp.stack(columns, axis=-2).reshape(out.shape)

    def dora_factor(self, number: int):
        """Return the magnitude of each column of a block over the norm of its kernel with the adapter, which counts
        as a constant.

        >>> kernel = jnp.array([[3.0, 0.0], [4.0, 1.0]])
        >>> a, b = jnp.zeros((2, 1, 1)), jnp.zeros((1, 1, 2))
        >>> AdaptedKernel(kernel, a, b, magnitude=jnp.array([[5.0, 2.0]])).dora_factor(0).tolist()
        [1.0, 2.0]
        """
        kernel, a, b = self.kernel_of_block(number), self.a[:, number], self.scale * self.b[number]
        mixed = jnp.einsum("dr,do->ro", a, kernel) * b
        squares = jnp.square(kernel).sum(0) + 2 * mixed.sum(0) + (b * ((a.T @ a) @ b)).sum(0)
        return self.magnitude[number] / jax.lax.stop_gradient(jnp.sqrt(squares))

    def kernel_of_block(self, number: int):
        """Return the part [D, width] of the kernel that the adapter of a block belongs to, in float32."""
        whole = self.kernel.reshape(self.a.shape[-3], self.num_blocks, -1)
        return whole[:, self.blocks[number]].astype(jnp.float32)

    def merge(self):
        """Return the kernel with the adapter in it."""
        whole = self.kernel.reshape(self.a.shape[-3], self.num_blocks, -1)
        for number, block in enumerate(self.blocks):
            merged = self.kernel_of_block(number) + self.scale * (self.a[:, number] @ self.b[number])
            if self.magnitude is not None:
                merged = merged * self.dora_factor(number)
            whole = whole.at[:, block].set(merged)
        return whole.reshape(self.kernel.shape)


def multiply(states, kernel, outputs: tuple[int, ...], dtype: str, result_dtype: str):
    """Return states [..., D] times a kernel [*inputs, *...], which has D inputs in all, as [..., *outputs]."""
    adapter = kernel if isinstance(kernel, AdaptedKernel) else None
    whole = adapter.kernel if adapter else kernel
    rest, columns = "abc"[: states.ndim - 1], "xyz"[: len(outputs)]
    whole = whole.reshape(math.prod(whole.shape) // math.prod(outputs), *outputs)
    out = mixed_einsum(f"{rest}d,d{columns}->{rest}{columns}", states, whole, dtype, result_dtype)
    return adapter.adapt(states, out, dtype) if adapter else out
