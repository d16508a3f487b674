"""Compiled programs: functions of (params, batch), one for each config, computation and shape."""

import os
import time
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, singledispatch
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.m3_encoder import TOKEN_WEIGHTS
from bert_jax.hub.sentence_transformers import PROJECTION
from bert_jax.inference.computations import (
    POOLER,
    AttentionWeights,
    Computation,
    HeadLogits,
    HiddenStates,
    LayerStates,
    LogLikelihoods,
    MaskFillings,
    PooledStates,
    QueryTokenVectors,
    SparseVectors,
    ThreeVectors,
    TokenVectors,
    TokenWeights,
    WithAdapters,
)
from bert_jax.inference.kept_programs import load_program, program_file, save_program
from bert_jax.models.adapted_kernel import AdaptedKernel
from bert_jax.models.bert import Bert
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.encoder import TransformerEncoder
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.heads import HEADS
from bert_jax.models.kernels.kernel_choice import note_choices
from bert_jax.models.layer_stack import stack_layers, unroll_layers
from bert_jax.models.layers import STATES, WEIGHTS
from bert_jax.models.mesh import DATA, platform
from bert_jax.models.pooling import pool, project, text_mask
from bert_jax.models.sparse_pooling import sparse_vectors
from bert_jax.models.token_vectors import limit_attention, vectors_of_tokens


def uses_unrolled_layers() -> bool:
    """Return whether each layer has its own arrays of parameters, instead of one stacked array for a scan.

    In a scan a CPU copies the parameters, which for a short text takes longer than the matrix products.
    """
    return platform() == "cpu"


def place_on_device(params: dict, sharding: NamedSharding | None = None) -> dict:
    """Put parameters on the device, or on several, unrolled if that is faster."""
    if uses_unrolled_layers():
        params = params | {"encoder": unroll_layers(params["encoder"])}
    return jax.device_put(params, sharding)


def restack_layers(placed: dict) -> dict:
    """Undo `place_on_device`."""
    return placed | {"encoder": stack_layers(placed["encoder"])} if uses_unrolled_layers() else placed


def round_kernels(params: dict, dtype: str) -> dict:
    """Cast kernels to the dtype of the matrix products, once instead of in each call."""

    def rounded(path, leaf):
        return leaf.astype(dtype) if any(getattr(key, "key", "") == "kernel" for key in path) else leaf

    return jax.tree_util.tree_map_with_path(rounded, params)


Program = Callable[[dict, dict], jax.Array | tuple[jax.Array, ...]]


class Shapes(NamedTuple):
    """The shapes of a tree of arrays, as a key."""

    structure: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]

    @classmethod
    def of(cls, tree, sharding: NamedSharding | None = None) -> "Shapes":
        leaves, structure = jax.tree.flatten(jax.eval_shape(lambda: tree))
        placed = (jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding) for leaf in leaves)
        return cls(structure, tuple(placed))

    @property
    def tree(self) -> Any:
        return jax.tree.unflatten(self.structure, self.leaves)


# Those of all models; models of equal shapes share them. Each is forgotten when no model has it any more.
PROGRAMS: MutableMapping[tuple, Future[Program]] = WeakValueDictionary()


def compile_program(
    computation: Computation, config: EncoderConfig, params: Shapes, batch: Shapes
) -> Future[Program]:
    """Return the program, which is perhaps still being compiled. It is kept for later processes."""
    key = computation, config, params, batch
    program = PROGRAMS.get(key)
    if program is None or program.cancelled():
        file = program_file(key, BLOCKS[config.block])
        if kept := file and load_program(file):
            PROGRAMS[key] = program = Future()
            program.set_result(kept)
            return program
        # It is traced here, because JAX's settings may be those of this thread.
        run = map_over_devices(program_of(computation, config), params.leaves[0].sharding)
        if file and not os.access(file.parent, os.W_OK):
            file = None
        if file:
            # By a name that JAX's cache does not know: what comes from there cannot be written to a file.
            run.__name__ = f"program_{token_hex(8)}"
        with note_choices() as kernels:
            lowered = jax.jit(run).lower(params.tree, batch.tree)
        PROGRAMS[key] = program = compiler_threads().submit(compile_and_keep, lowered, kernels, file)
    return program


def compile_and_keep(lowered: jax.stages.Lowered, kernels: dict, file: Path | None) -> Program:
    start = time.perf_counter()
    program = lowered.compile()
    is_slow = time.perf_counter() - start >= jax.config.jax_persistent_cache_min_compile_time_secs
    if file and is_slow:
        # Whoever waits for the program does not wait for this. An error is told, though nobody waits for it.
        compiler_threads().submit(save_program, file, program, kernels).add_done_callback(Future.result)
    return program


@cache
def compiler_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "compiler")


def map_over_devices(run: Program, sharding: NamedSharding | None) -> Program:
    """Let each device of a mesh compute its own rows of a batch; none waits for another."""
    if sharding is None:
        return run
    return jax.shard_map(
        run,
        mesh=sharding.mesh,
        in_specs=(P(), P(DATA)),
        out_specs=P(DATA),
        axis_names={DATA},
        check_vma=False,
    )


@singledispatch
def program_of(computation: Computation, config: EncoderConfig) -> Program:
    """Return the function that computes it. Each of the functions below does so for a class of computations."""
    raise TypeError(f"no program computes {computation!r}")


@program_of.register
def head_logits(wanted: HeadLogits, config: EncoderConfig) -> Program:
    module = module_with_head(config, wanted.head, wanted.labels)

    def run(params, batch):
        outputs = module.apply({"params": params}, batch)
        logits = outputs[wanted.head]
        return (logits, pool(outputs["hidden"], text_mask(batch))) if wanted.with_vectors else logits

    return run


def module_with_head(config: EncoderConfig, head: str, labels: int = 0) -> Bert:
    return Bert(config, (head,), labels, HEADS[head].pooler, uses_unrolled_layers())


@program_of.register
def with_adapters(wanted: WithAdapters, config: EncoderConfig) -> Program:
    """Compute with kernels that are `AdaptedKernel`. The parameters of `modules`, [S, ...] for S adapters, are those of
    the head and of what lies below it, and are applied to each row alone."""
    inner = wanted.computation

    def run(params, batch):
        chosen = batch["adapter"]
        rest = {name: array for name, array in batch.items() if name != "adapter"}
        params = params | {"encoder": choose_adapters(params["encoder"], chosen)}
        if not isinstance(inner, HeadLogits):
            return program_of(inner, config)(params, rest)
        hidden = TransformerEncoder(config, uses_unrolled_layers()).apply({"params": params["encoder"]}, rest)
        module = module_with_head(config, inner.head, inner.labels)

        def logits_of_row(own, hidden, mask):
            outputs = module.apply({"params": own}, {"attention_mask": mask[None]}, hidden=hidden[None])
            return outputs[inner.head][0]

        own = jax.tree.map(lambda leaf: leaf[chosen], params["modules"])
        logits = jax.vmap(logits_of_row)(own, hidden, rest["attention_mask"])
        return (logits, pool(hidden, rest["attention_mask"])) if inner.with_vectors else logits

    return run


def choose_adapters(encoder: dict, chosen) -> dict:
    """Return an encoder's parameters with the adapter of each row, `chosen` [B], in the kernels that have adapters."""

    def of_rows(leaf):
        if not isinstance(leaf, AdaptedKernel):
            return leaf
        layers = () if uses_unrolled_layers() else leaf.kernel.shape[:1]
        return leaf.replace(chosen=jnp.broadcast_to(chosen, (*layers, *chosen.shape)))

    return jax.tree.map(of_rows, encoder, is_leaf=lambda leaf: isinstance(leaf, AdaptedKernel))


@program_of.register
def last_hidden_states(wanted: HiddenStates, config: EncoderConfig) -> Program:
    encoder = TransformerEncoder(config, uses_unrolled_layers())

    def run(params, batch):
        return encoder.apply({"params": params["encoder"]}, batch).astype("float32")

    return run


@program_of.register
def layer_states(wanted: LayerStates, config: EncoderConfig) -> Program:
    def run(params, batch):
        last, states = run_with_intermediates(config, STATES, params, batch)
        states = [*jax.tree.leaves(states)[: config.num_hidden_layers], last]
        return jnp.stack([states[layer] for layer in wanted.layers], axis=1).astype("float32")

    return run


@program_of.register
def attention_weights(wanted: AttentionWeights, config: EncoderConfig) -> Program:
    def run(params, batch):
        _, kept = run_with_intermediates(config, WEIGHTS, params, batch)
        # The layers of a group share parameters and are called in sequence.
        of_groups = [jax.tree.leaves(kept[f"layers_{group}"]) for group in range(config.groups) if kept]
        weights = [leaf for leaves in of_groups for leaf in leaves]
        if len(weights) != config.num_hidden_layers:
            raise BertJaxError(f"the layers of block {config.block} keep no attention weights")
        return jnp.stack([weights[layer] for layer in wanted.layers], axis=1).astype("float32")

    return run


def run_with_intermediates(config: EncoderConfig, collection: str, params: dict, batch: dict):
    """Return (hidden states, the values of the collection that the layers kept)."""
    of_encoder = params["encoder"] if uses_unrolled_layers() else unroll_layers(params["encoder"])
    hidden, kept = TransformerEncoder(config, unrolled=True).apply(
        {"params": of_encoder}, batch, mutable=collection
    )
    return hidden, kept.get(collection, {})


@program_of.register
def pooled_states(wanted: PooledStates, config: EncoderConfig) -> Program:
    def run(params, batch):
        if wanted.pooling == POOLER:
            pooled = Bert(config, unrolled=uses_unrolled_layers()).apply({"params": params}, batch)["pooled"]
            return pooled.astype("float32")
        return from_states(config, pool_states, wanted)(params, batch)

    return run


def pool_states(wanted: PooledStates, params: dict, hidden, batch: dict):
    if wanted.projection is None:
        return pool(hidden, text_mask(batch), wanted.pooling, wanted.normalize)
    vectors = pool(hidden, text_mask(batch), wanted.pooling, False)
    return project(vectors, params[PROJECTION]["dense"], wanted.projection.activation)


def from_states(config: EncoderConfig, compute: Callable, wanted: Computation) -> Program:
    """Return the program of what `compute` makes of the hidden states of the last layer."""
    encoder = TransformerEncoder(config, uses_unrolled_layers())

    def run(params, batch):
        return compute(wanted, params, encoder.apply({"params": params["encoder"]}, batch), batch)

    return run


@program_of.register
def pooled_logits(wanted: SparseVectors, config: EncoderConfig) -> Program:
    encoder, decodes = TransformerEncoder(config, uses_unrolled_layers()), config.positions == "decoder"

    def run(params, batch):
        states = encoder.apply({"params": params["encoder"]}, batch, False, decodes)
        states = states[1] if decodes else states
        return sparse_vectors(
            config, params, states, batch["attention_mask"], wanted.pooling, wanted.activation
        )

    return run


@program_of.register
def token_vectors(wanted: TokenVectors, config: EncoderConfig) -> Program:
    return from_states(config, project_states, wanted)


def project_states(wanted: TokenVectors, params: dict, hidden, batch: dict):
    layer, activation = None, "none"
    if wanted.projection:
        layer, activation = params[PROJECTION]["dense"], wanted.projection.activation
    return vectors_of_tokens(hidden, layer, activation, wanted.normalize)


@program_of.register
def token_weights(wanted: TokenWeights, config: EncoderConfig) -> Program:
    return from_states(config, weigh_states, wanted)


def weigh_states(wanted: TokenWeights, params: dict, hidden, batch: dict):
    weights = project(hidden.astype(jnp.float32), params[TOKEN_WEIGHTS]["dense"], "none")
    return jax.nn.relu(weights[..., 0])


@program_of.register
def three_vectors(wanted: ThreeVectors, config: EncoderConfig) -> Program:
    def compute(wanted, *states):
        dense, sparse = pool_states(wanted.dense, *states), weigh_states(wanted.sparse, *states)
        return dense, sparse, project_states(wanted.tokens, *states)

    return from_states(config, compute, wanted)


@program_of.register
def query_token_vectors(wanted: QueryTokenVectors, config: EncoderConfig) -> Program:
    # Other kernels give no states of tokens that are not attended to.
    of_tokens = token_vectors(wanted, config.replace(attention="xla"))
    return lambda params, batch: of_tokens(params, limit_attention(batch))


@program_of.register
def mask_fillings(wanted: MaskFillings, config: EncoderConfig) -> Program:
    module = module_with_head(config, "mlm")

    def run(params, batch):
        logits = module.apply({"params": params}, batch)["mlm"]
        return jax.lax.top_k(jax.nn.softmax(logits.astype(jnp.float32)), wanted.top)

    return run


@program_of.register
def log_likelihoods(wanted: LogLikelihoods, config: EncoderConfig) -> Program:
    module = module_with_head(config, "mlm")

    def run(params, batch):
        logits = module.apply({"params": params}, batch)["mlm"].astype(jnp.float32)
        picked = jnp.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
        return picked - jax.nn.logsumexp(logits, axis=-1)

    return run
