"""What an encoder is made of: sizes, numerics and how it is computed."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from bert_jax.config import NotNegative, OneOf, Positive, Range, Registered, check_choices, check_ranges
from bert_jax.errors import BertJaxError, nearest
from bert_jax.models.mesh import platform
from bert_jax.models.precision import fast_dtype
from bert_jax.registry import Registry

# Here rather than in the folder of the blocks, which import this file: so that folder may import any of them.
BLOCKS = Registry("bert_jax.models.blocks", "block", "Block")

Theta = Annotated[float, Range(1, 1e12, beside=0)]
Size = Annotated[int, Range(1, 10**9)]
SizeOrNone = Annotated[int, Range(0, 10**9)]
Rate = Annotated[float, Range(0, 1, below=True)]
OwnRate = Annotated[float, Range(0, 1, below=True, beside=-1)]
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
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
Activation = Annotated[str, OneOf(ACTIVATIONS)]
Attention = Annotated[
    str, OneOf(("auto", "short", "splash", "cudnn", "xla"))
]  # kernels stand in attention.py


@dataclass(frozen=True)
class RelativeConfig:
    """What attention knows of the distance between two tokens; nothing without terms.

    Terms: a "bias" for each head and bucket; or products with states of the distance, which the other token's place
    gives as "keys" of queries, or as "queries" of keys.
    """

    # what attention reads of the distance between two tokens: bias; keys, queries or both; (): nothing
    terms: tuple[str, ...] = ()
    buckets: int = 0  # groups of distances, far ones together; 0: each distance has its own
    farthest: int = 0  # distance from which on all count as the same
    shared: bool = False  # projects states of distances as those of tokens
    normalized: bool = False  # normalizes the states of distances before that
    key_bias: bool = True  # keys of tokens and of distances have a bias

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

    theta: Theta = 0.0  # base of the rotary positions; 0: the model has none
    near_theta: Theta = 0.0  # base in the layers that see near tokens alone; 0: the same

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.rotary.")


@dataclass(frozen=True)
class NearConfig:
    """Layers whose tokens see near ones alone: all but every `every`-th, which from the first on sees all."""

    window: NotNegative = 0  # tokens that a layer sees to each side; 0: every layer sees all
    every: Positive = 1  # layers from one that sees all tokens to the next, from the first on

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.near.")


@dataclass(frozen=True)
class ConvolutionConfig:
    """Of the embeddings, beside the first layer."""

    # tokens that the convolution beside the first layer reads, an odd number; 0: no convolution
    width: NotNegative = 0
    activation: Annotated[str, OneOf((*ACTIVATIONS, "tanh"))] = "tanh"  # activation after the convolution

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.convolution.")
        check_choices(self, "EncoderConfig.convolution.")
        if self.width and self.width % 2 == 0:
            raise BertJaxError(
                f"EncoderConfig.convolution.width must be an odd number or 0, not {self.width!r}"
            )


@dataclass(frozen=True)
class PoolerConfig:
    """From the [CLS] state to the pooled one: a dense layer and an activation."""

    activation: Annotated[str, OneOf((*ACTIVATIONS, "tanh"))] = "tanh"  # activation of the pooler
    dropout: bool = False  # dropout of the [CLS] state before the pooler, at the rate of head_dropout
    mean: bool = False  # reads the mean of all states of a text instead of the [CLS] state
    norm: bool = False  # LayerNorm after the activation

    def __post_init__(self):
        check_choices(self, "EncoderConfig.pooler.")


@dataclass(frozen=True)
class EncoderConfig:
    """BERT-base unless told otherwise.

    >>> EncoderConfig(hiden_size=512)
    Traceback (most recent call last):
    bert_jax.errors.BertJaxError: EncoderConfig has no field "hiden_size"; did you mean "hidden_size"?
    """

    vocab_size: Size = 30522  # entries of the vocabulary
    hidden_size: Size = 768  # numbers of a hidden state
    layers: Size = 12  # layers of the encoder
    heads: Size = 12  # attention heads of a layer
    feed_forward: Size = 3072  # numbers in the middle of the feed-forward
    max_positions: Size = 512  # tokens that a text can have
    segment_types: SizeOrNone = 2  # segments that the model tells apart; 0: it reads none
    # numbers of an embedding, which a dense layer widens; 0: hidden_size, no such layer
    embedding_size: SizeOrNone = 0
    # where positions are added: to the embeddings, nowhere, or in an enhanced mask decoder before the masked LM
    positions: Annotated[str, OneOf(("learned", "none", "decoder"))] = "learned"
    # activation of the feed-forward; gelu is the exact form, gelu_tanh the approximation
    activation: Activation = "gelu"
    # activation of the masked LM; "": that of the feed-forward
    mlm_activation: Annotated[str, OneOf(("", *ACTIVATIONS))] = ""
    norm_epsilon: Rate = 1e-12  # added to the variance in LayerNorm
    dropout: Rate = 0.1  # dropout of hidden states
    attention_dropout: Rate = 0.1  # dropout of attention probabilities
    head_dropout: Rate = 0.1  # dropout before a classifier
    tag_dropout: OwnRate = -1.0  # dropout before a tagger; -1: head_dropout
    answer_dropout: Rate = 0.0  # dropout before the start and end of an answer
    init_stddev: Rate = 0.02  # standard deviation of initial values
    tied_decoder: bool = True  # the masked LM decodes with the word embeddings
    block: Annotated[str, Registered(BLOCKS.names)] = "post_norm"  # what a layer is: the name of a block
    relative: RelativeConfig = RelativeConfig()
    bias: bool = True  # dense layers of the blocks have a bias
    norm_bias: bool = True  # LayerNorms have a bias
    # dense layers of masked LM and pooler have a bias; what gives logits has one anyway
    head_bias: bool = True
    # taggers and answer finders have a dense layer and a LayerNorm, as the masked LM has
    transform: bool = False
    scaled_init: bool = False  # what adds to hidden states begins smaller, the more layers there are
    gated: bool = False  # the feed-forward multiplies its activations by a gate
    rotary: RotaryConfig = RotaryConfig()
    near: NearConfig = NearConfig()
    convolution: ConvolutionConfig = ConvolutionConfig()
    layer_groups: SizeOrNone = 0  # groups of layers that share their parameters; 0: no layer shares them
    pooler: PoolerConfig = field(default_factory=PoolerConfig)

    # How it is computed: none of these changes what is saved.

    attention: Attention = "auto"  # kernel of attention; auto: the fastest that can do it here
    # type of the computation; parameters, softmax, LayerNorm and losses are float32; auto: what is fast here
    dtype: Annotated[str, OneOf(("float32", "bfloat16", "auto"))] = "float32"
    # activations that the backward pass computes again, to save memory: norms alone, all but matrix products, all
    remat: Annotated[str, OneOf(("none", "dots", "full"))] = "none"
    # layers one after another, not as a loop: a fifth faster on a GPU, slower to compile
    unroll: bool = False
    # the word embeddings are padded to a multiple of this; 128 fills a TPU's lanes and divides over chips
    vocab_multiple: Size = 1

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
        check_choices(self, "EncoderConfig.")
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
