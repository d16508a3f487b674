"""How the examples of a run are batched for the available devices."""

from collections.abc import Sequence

from bert_jax.data.examples.row_packing import ACCELERATOR_COSTS, COSTS, BatchConfig, RowLayout
from bert_jax.finetuning.epochs_config import EpochsConfig
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.mesh import device_count, platform


def make_batch_config(
    config: EpochsConfig,
    layout: RowLayout,
    longest: int,
    encoder: EncoderConfig,
    lengths: Sequence[int] = (),
    sets: Sequence[tuple[int, float]] = (),
    group_size: int = 1,
) -> BatchConfig:
    """Return the settings of the batches; each of the config's examples consists of `together` pieces."""
    mesh, backend = config.mesh, platform()
    return BatchConfig(
        layout,
        config.batch_size * group_size,
        max(config.steps, 1),
        config.seed,
        encoder.hidden_size,
        encoder.num_hidden_layers,
        longest,
        # A TPU's lanes, and its attention kernel, take multiples of 128 tokens.
        multiple=128 if backend == "tpu" else 8,
        shards=device_count() // mesh.tensor * mesh.gradient_accumulation_steps,
        costs=COSTS.get(backend, ACCELERATOR_COSTS),
        lengths=tuple(lengths),
        sets=tuple(sets),
        group_size=group_size,
    )
