"""What an encoder is made of: sizes, numerics and how it is computed."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from bert_jax.config import NotNegative, Positive, Range, check_ranges
from bert_jax.errors import BertJaxError, nearest
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.mesh import platform
from bert_jax.models.precision import fast_dtype

Theta = Annotated[float, Range(1, 1e12, beside=0)]
Size = Annotated[int, Range(1, 10**9)]
SizeOrNone = Annotated[int, Range(0, 10**9)]
Rate = Annotated[float, Range(0, 1, below=True)]
# How the encoder is computed and trained, as opposed to what it is.
COMPUTED = ("attention", "dtype", "remat", "unroll", "vocab_multiple")
RATES = (
    "dropout",
    "attention_dropout",
    "head_dropout",
    "tag_dropout",
    "answer_dropout",
    "init_stddev",
    "scaled_init",
)
# What a field may say; the attention kernels themselves stand in attention.py.
CHOICES = {
    "activation": ("gelu", "gelu_tanh", "relu", "silu"),
    "mlm_activation": ("", "gelu", "gelu_tanh", "relu", "silu"),
    "positions": ("learned", "none", "decoder"),
    "attention": ("auto", "short", "splash", "cudnn", "xla"),
    "dtype": ("float32", "bfloat16", "auto"),
    "remat": ("none", "dots", "full"),
}


@dataclass(frozen=True)
class RelativeConfig:
    """What attention knows of the distance between two tokens; nothing without terms.

    Terms: a "bias" for each head and bucket; or products with states of the distance, which the other token's place
    gives as "keys" of queries, or as "queries" of keys.
    """

    terms: tuple[str, ...] = ()
    buckets: int = 0  # of distances, the far ones together; 0: each has its own
    farthest: int = 0  # the distance from which on all are alike
    shared: bool = False  # states of distances are projected as those of tokens are
    normalized: bool = False  # before that
    key_bias: bool = True  # keys have a bias, of tokens and of distances

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.relative.")
        if not self.terms:
            return
        known = [("bias",), ("keys",), ("queries",), ("keys", "queries")]
        if self.terms not in known:
            raise BertJaxError(f"EncoderConfig.relative.terms are one of {known}, not {self.terms!r}")
        least = 4 if self.is_bias else 0
        if self.buckets < least or self.buckets % 2 or self.buckets == 2:
            raise BertJaxError(
                f"EncoderConfig.relative.buckets must be an even number of at least 4, not {self.buckets!r}"
            )
        nearest_far = self.buckets // 2 + 2
        if self.farthest < nearest_far:
            raise BertJaxError(
                f"EncoderConfig.relative.farthest must be a whole number of at least {nearest_far}, "
                f"not {self.farthest!r}"
            )

    @property
    def is_bias(self) -> bool:
        return self.terms == ("bias",)

    @property
    def span(self) -> int:
        """Rows to each side of the table of states."""
        return self.buckets or self.farthest


@dataclass(frozen=True)
class RotaryConfig:
    """Queries and keys turn with their place: the first pair of numbers by a radian a place, the last by some
    1 / theta."""

    theta: Theta = 0.0  # 0: none
    near_theta: Theta = 0.0  # of layers that see near tokens alone; 0: the same

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.rotary.")


@dataclass(frozen=True)
class NearConfig:
    """Layers whose tokens see near ones alone: all but every `every`-th, which from the first on sees all."""

    window: NotNegative = 0  # places to each side; 0: every layer sees all
    every: Positive = 1

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.near.")


@dataclass(frozen=True)
class ConvolutionConfig:
    """Of the embeddings, beside the first layer."""

    width: NotNegative = 0  # neighbours with the token itself; 0: none
    activation: str = "tanh"

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.convolution.")
        if self.width and self.width % 2 == 0:
            raise BertJaxError(
                f"EncoderConfig.convolution.width must be an odd number or 0, not {self.width!r}"
            )


@dataclass(frozen=True)
class PoolerConfig:
    """From the [CLS] state to the pooled one: a dense layer and an activation."""

    activation: str = "tanh"
    dropout: bool = False  # of the [CLS] state, at the rate of head_dropout
    mean: bool = False  # of all states of a text instead of the [CLS] state
    norm: bool = False  # behind the activation

    def __post_init__(self):
        known = (*CHOICES["activation"], "tanh")
        if self.activation not in known:
            raise BertJaxError(
                f'EncoderConfig.pooler.activation has no "{self.activation}"; {nearest(self.activation, known)}'
            )


@dataclass(frozen=True)
class EncoderConfig:
    """BERT-base unless told otherwise.

    >>> EncoderConfig(hiden_size=512)
    Traceback (most recent call last):
    bert_jax.errors.BertJaxError: EncoderConfig has no field "hiden_size"; did you mean "hidden_size"?
    """

    vocab_size: Size = 30522
    hidden_size: Size = 768
    layers: Size = 12
    heads: Size = 12
    feed_forward: Size = 3072
    max_positions: Size = 512
    segment_types: SizeOrNone = 2  # 0: segments are not read
    # Of the embeddings, which a dense layer brings to hidden_size; 0: hidden_size, without that layer.
    embedding_size: SizeOrNone = 0
    # A table of max_positions rows; "none": no table, and max_positions is a limit alone; "decoder": the table is for
    # the enhanced mask decoder, which stands between the encoder and the masked LM, and embeddings know no positions.
    positions: str = "learned"
    activation: str = "gelu"  # the exact erf form; "gelu_tanh" is the approximation
    mlm_activation: str = ""  # within the masked LM; "": activation
    norm_epsilon: Rate = 1e-12
    dropout: Rate = 0.1  # of hidden states
    attention_dropout: Rate = 0.1
    head_dropout: Rate = 0.1  # before a classifier
    tag_dropout: Annotated[
        float, Range(0, 1, below=True, beside=-1)
    ] = -1.0  # before a tagger; -1: head_dropout
    answer_dropout: Rate = 0.0  # before an answer's start and end
    init_stddev: Rate = 0.02
    tied_decoder: bool = True  # the masked LM decodes with the word embeddings
    block: str = "post_norm"  # a file of models/blocks
    relative: RelativeConfig = RelativeConfig()
    bias: bool = True  # of the dense layers in blocks
    norm_bias: bool = True  # of every LayerNorm
    head_bias: bool = True  # of the dense layers in masked LM and pooler, but not of what gives logits
    # Taggers and answer finders read a dense layer, an activation and a LayerNorm, as the masked LM does.
    transform: bool = False
    scaled_init: bool = False  # what adds to the hidden states begins smaller the more layers there are
    gated: bool = False  # the feed-forward multiplies what it activates by a gate
    rotary: RotaryConfig = RotaryConfig()
    near: NearConfig = NearConfig()
    convolution: ConvolutionConfig = ConvolutionConfig()
    layer_groups: SizeOrNone = (
        0  # groups of layers that share their parameters; 0: as many as layers, none shares
    )
    pooler: PoolerConfig = field(default_factory=PoolerConfig)

    # How it is computed; none of these changes what is saved.
    attention: str = "auto"
    # Of the computation; parameters, softmax, LayerNorm and losses are float32. "auto": what is fast on the device.
    dtype: str = "float32"
    # What the backward pass computes again: only LayerNorm and activations, all but matrix products, all.
    remat: str = "none"
    # Layers one after another, not as a loop: a fifth faster on a GPU, slower to compile.
    unroll: bool = False
    vocab_multiple: Size = (
        1  # word embeddings are padded to this; 128 fills a TPU's lanes and divides over chips
    )

    def __new__(cls, *args, **fields):
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                raise BertJaxError(f'EncoderConfig has no field "{name}"; {nearest(name, known)}')
        return super().__new__(cls)

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.")
        for known in dataclasses.fields(self):
            if known.type is bool and type(value := getattr(self, known.name)) is not bool:
                raise BertJaxError(f"EncoderConfig.{known.name} must be True or False, not {value!r:.40}")
        BLOCKS.check(self.block)
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in choices:
                raise BertJaxError(f'EncoderConfig.{name} has no "{value!s:.60}"; {nearest(value, choices)}')
        parts = {"hidden_size": ("heads", self.heads), "layers": ("layer_groups", self.groups)}
        for whole, (name, count) in parts.items():
            if (size := getattr(self, whole)) % count:
                close = next(n for n in range(min(count, 4096), 0, -1) if size % n == 0)
                raise BertJaxError(
                    f"EncoderConfig.{name} = {count} does not divide {whole} = {size}; {close} does"
                )
        if self.rotary.theta and self.head_size % 2:
            raise BertJaxError(
                f"EncoderConfig.rotary turns pairs of numbers: heads of {self.head_size} must be even"
            )
        if self.layer_groups == self.layers:
            object.__setattr__(self, "layer_groups", 0)  # one way to say it, so that equal configs are equal

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    @property
    def embedding_width(self) -> int:
        return self.embedding_size or self.hidden_size

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

    @property
    def architecture(self) -> dict[str, Any]:
        """What the model is, by dotted names, without how it is computed and trained."""
        values = {known.name: getattr(self, known.name) for known in dataclasses.fields(self)}
        return flattened({name: value for name, value in values.items() if name not in (*COMPUTED, *RATES)})

    @property
    def settings(self) -> dict[str, Any]:
        """As nested dicts, the fields that differ from the defaults."""
        values, default = dataclasses.asdict(self), dataclasses.asdict(EncoderConfig())
        return {name: value for name, value in values.items() if value != default[name]}

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


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted names, those of nested configs among them.

    >>> flattened({"layers": 2, "convolution": ConvolutionConfig()})
    {'layers': 2, 'convolution.width': 0, 'convolution.activation': 'tanh'}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(value):
            nested = {inner.name: getattr(value, inner.name) for inner in dataclasses.fields(value)}
            flat |= flattened(nested, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
