"""What an encoder is made of: sizes, numerics and how it is computed."""

import dataclasses
from dataclasses import dataclass

from bert_jax.errors import BertJaxError, nearest
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.mesh import platform
from bert_jax.models.precision import fast_dtype

# What a field may say; the attention kernels themselves stand in attention.py.
CHOICES = {
    "activation": ("gelu", "gelu_tanh", "relu", "silu"),
    "attention": ("auto", "short", "splash", "cudnn", "xla"),
    "dtype": ("float32", "bfloat16", "auto"),
    "remat": ("none", "dots", "full"),
}


@dataclass(frozen=True)
class EncoderConfig:
    """BERT-base unless told otherwise.

    >>> EncoderConfig(hiden_size=512)
    Traceback (most recent call last):
    bert_jax.errors.BertJaxError: EncoderConfig has no field "hiden_size"; did you mean "hidden_size"?
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward: int = 3072
    max_positions: int = 512
    segment_types: int = 2
    activation: str = "gelu"  # the exact erf form; "gelu_tanh" is the approximation
    norm_epsilon: float = 1e-12
    dropout: float = 0.1  # of hidden states
    attention_dropout: float = 0.1
    head_dropout: float = 0.1  # before a classifier
    init_stddev: float = 0.02
    tied_decoder: bool = True  # the masked LM decodes with the word embeddings
    block: str = "post_norm"  # a file of models/blocks
    layer_groups: int = 0  # groups of layers that share their parameters; 0: as many as layers, none shares

    # How it is computed; none of these changes what is saved.
    attention: str = "auto"
    # Of the computation; parameters, softmax, LayerNorm and losses are float32. "auto": what is fast on the device.
    dtype: str = "float32"
    # What the backward pass computes again: only LayerNorm and activations, all but matrix products, all.
    remat: str = "none"
    unroll: bool = (
        False  # layers one after another, not as a loop: a fifth faster on a GPU, slower to compile
    )
    vocab_multiple: int = (
        1  # word embeddings are padded to this; 128 fills a TPU's lanes and divides over chips
    )

    def __new__(cls, *args, **fields):
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                raise BertJaxError(f'EncoderConfig has no field "{name}"; {nearest(name, known)}')
        return super().__new__(cls)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "layer_groups" else 1
            if field.type is int and (type(value) is not int or value < least):
                raise BertJaxError(
                    f"EncoderConfig.{field.name} must be a whole number of at least {least}, not {value!r}"
                )
            if field.type is float and (not isinstance(value, int | float) or not 0 <= value < 1):
                raise BertJaxError(f"EncoderConfig.{field.name} must be a number in [0, 1), not {value!r}")
            if field.type is bool and type(value) is not bool:
                raise BertJaxError(f"EncoderConfig.{field.name} must be True or False, not {value!r}")
        BLOCKS.check(self.block)
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise BertJaxError(
                    f'EncoderConfig.{name} has no "{getattr(self, name)}"; {nearest(getattr(self, name), known)}'
                )
        parts = {"hidden_size": ("heads", self.heads), "layers": ("layer_groups", self.groups)}
        for whole, (name, count) in parts.items():
            if (size := getattr(self, whole)) % count:
                close = next(n for n in range(min(count, 4096), 0, -1) if size % n == 0)
                raise BertJaxError(
                    f"EncoderConfig.{name} = {count} does not divide {whole} = {size}; {close} does"
                )
        if self.layer_groups == self.layers:
            object.__setattr__(self, "layer_groups", 0)  # one way to say it, so that equal configs are equal

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    @property
    def computed_dtype(self) -> str:
        """`dtype`, or what "auto" stands for where the program runs."""
        return fast_dtype(platform()) if self.dtype == "auto" else self.dtype

    @property
    def groups(self) -> int:
        """Groups of layers, each with parameters of its own."""
        return self.layer_groups or self.layers

    @property
    def padded_vocab(self) -> int:
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    def replace(self, **changes) -> "EncoderConfig":
        return dataclasses.replace(self, **changes)

    @classmethod
    def named(cls, size: str, **changes) -> "EncoderConfig":
        """A published size: tiny, mini, small, medium, base or large.

        >>> EncoderConfig.named("tiny").layers
        2
        """
        if size not in SIZES:
            raise BertJaxError(f'no size "{size}"; {nearest(size, SIZES)}')
        layers, hidden_size = SIZES[size]
        # Every published size has heads of 64 and a feed-forward of four times the width.
        shape = {
            "layers": layers,
            "hidden_size": hidden_size,
            "heads": hidden_size // 64,
            "feed_forward": 4 * hidden_size,
        }
        return cls(**{**shape, **changes})


SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
