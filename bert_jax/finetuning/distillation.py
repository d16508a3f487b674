"""What objectives that distil share: the student's config, the settings of the losses, and its first layers."""

from dataclasses import dataclass
from typing import Annotated, Any

import jax
import numpy as np

from bert_jax.core.config import NonNegative, Positive, Range
from bert_jax.finetuning.epochs_config import InitEncoderConfig
from bert_jax.models.encoder_config import EncoderConfig

Weight = Annotated[float, Range(0, 1e6)]


@dataclass(frozen=True)
class StudentEncoderConfig(InitEncoderConfig):
    """Sizes of the student; in everything else it is like `init`, or else like the teacher."""

    num_hidden_layers: NonNegative = 0  # number of layers; 0: as in `init`, or half as many as the teacher
    hidden_size: NonNegative = 0  # size of the hidden states; 0: as in `init`, or in the teacher
    num_attention_heads: NonNegative = 0  # number of attention heads; 0: as in `init`, or in the teacher
    # inner size of the feed-forward; 0: in the same ratio to hidden_size as in `init`, or in the teacher
    intermediate_size: NonNegative = 0
    # pad the word embeddings of both models to a multiple of this; 128 fills a TPU's lanes
    vocab_multiple: Positive = 1
    unroll: bool = False  # compile the layers of both models one by one, not as a loop

    @property
    def compute_settings(self) -> dict[str, Any]:
        return super().compute_settings | {"vocab_multiple": self.vocab_multiple, "unroll": self.unroll}

    def derive_encoder(self, source: EncoderConfig, layers: int) -> EncoderConfig:
        """Return the student's config: that of `source` with the sizes and dropout rates set here; `layers` is the
        default number of layers."""
        width = self.hidden_size or source.hidden_size
        return source.replace(
            num_hidden_layers=self.num_hidden_layers or layers,
            hidden_size=width,
            num_attention_heads=self.num_attention_heads or source.num_attention_heads,
            intermediate_size=self.intermediate_size
            or source.intermediate_size * width // source.hidden_size,
            **self.dropout_rates,
        )


@dataclass(frozen=True)
class DistillationLossConfig:
    """Settings of the losses; each objective reads its own."""

    # distilbert: temperature of both models' probabilities
    temperature: Annotated[float, Range(0, 1000, exclusive_minimum=True)] = 2.0
    soft: Weight = 5.0  # distilbert: weight of the loss against the teacher's probabilities for masked words
    mlm: Weight = 2.0  # distilbert: weight of the masked-LM loss
    cosine: Weight = 1.0  # distilbert: weight of the cosine distance between the last hidden states
    # minilm: number of heads into which queries, keys and values are split
    relation_heads: Annotated[int, Range(1, 4096)] = 48
    # tinybert: weight of the loss on attention scores; 0: none, and numbers of heads may differ
    scores: Weight = 1.0
    # minilm: layer of the teacher to learn from; 0: the last one or, of more than 12 layers, the one at seven eighths
    # of the depth
    teacher_layer: NonNegative = 0


def keep_layers(params: dict, source: EncoderConfig, student: EncoderConfig) -> dict:
    """Keep as many of the source's layers, evenly spaced, as the student has; return the parameters."""
    if source.groups == student.groups:
        return params
    kept, encoder = evenly_spaced(source.groups, student.groups), params["encoder"]
    layers = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], encoder["layers"])
    return params | {"encoder": encoder | {"layers": layers}}


def evenly_spaced(count: int, kept: int) -> list[int]:
    """Return the indices of `kept` out of `count` layers, evenly spaced from the first to the last.

    >>> evenly_spaced(12, 6)
    [0, 2, 4, 7, 9, 11]
    """
    return [round(i * (count - 1) / max(kept - 1, 1)) for i in range(kept)]
