"""The configuration of an encoder: its architecture, and how it is computed and trained."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from bert_jax.core.config import NonNegative, OneOf, Positive, Range, Registered, check_choices, check_ranges
from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.core.registry import Registry

# Here rather than in the folder of the blocks: blocks import this file, and that folder may import any block.
BLOCKS = Registry("bert_jax.models.blocks", "block", "Block")

Theta = Annotated[float, Range(1, 1e12, sentinel=0)]
Size = Annotated[int, Range(1, 10**9)]
SizeOrNone = Annotated[int, Range(0, 10**9)]
Rate = Annotated[float, Range(0, 1, exclusive_maximum=True)]
OwnRate = Annotated[float, Range(0, 1, exclusive_maximum=True, sentinel=-1)]
# Fields that say how the encoder is computed (COMPUTATION_FIELDS) or trained (TRAINING_FIELDS), not what it is.
COMPUTATION_FIELDS = ("attention", "dtype", "remat", "unroll", "vocab_multiple")
TRAINING_FIELDS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "head_dropout",
    "tag_dropout",
    "answer_dropout",
    "initializer_range",
    "scaled_init",
)
DTYPES = ("float32", "bfloat16", "auto")
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
Activation = Annotated[str, OneOf(ACTIVATIONS)]
# The kernels are in attention.py.
AttentionKernelName = Annotated[str, OneOf(("auto", "short", "splash", "cudnn", "flash", "xla"))]


@dataclass(frozen=True)
class RelativeConfig:
    """The relative terms, which the distance between two tokens adds to their attention score. There may be none.

    Terms are a "bias" for each head and bucket (T5), or products with embeddings of the distance (DeBERTa). Embeddings
    are projected to "keys", which meet the queries of tokens, to "queries", which meet the keys of tokens, or to both.
    """

    # what distance adds to attention scores: bias (T5), or keys, queries or both (DeBERTa); (): nothing
    terms: tuple[str, ...] = ()
    buckets: int = 0  # groups of distances, wider ones for far tokens; 0: each distance is a group
    max_distance: int = 0  # distances of this size and beyond count as the same
    shared: bool = False  # project distances with the weights of tokens
    normalized: bool = False  # LayerNorm of the distance embeddings before they are projected
    key_bias: bool = True  # a bias for the keys of tokens and distances

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.relative.")
        if not self.terms:
            return
        valid_terms = [("bias",), ("keys",), ("queries",), ("keys", "queries")]
        if self.terms not in valid_terms:
            raise BertJaxError(
                f"EncoderConfig.relative.terms must be one of {valid_terms}, not {self.terms!r}"
            )
        least = 4 if self.is_bias else 0
        if self.buckets < least or self.buckets % 2 or self.buckets == 2:
            raise BertJaxError(
                f"EncoderConfig.relative.buckets must be an even number of at least 4, not {self.buckets!r}"
            )
        nearest_far = self.buckets // 2 + 2
        if self.max_distance < nearest_far:
            raise BertJaxError(
                f"EncoderConfig.relative.max_distance must be a whole number of at least {nearest_far}, "
                f"not {self.max_distance!r}"
            )

    @property
    def is_bias(self) -> bool:
        return self.terms == ("bias",)

    @property
    def span(self) -> int:
        """The number of distance embeddings for each side."""
        return self.buckets or self.max_distance


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary position embeddings: queries and keys are rotated by angles proportional to their position.

    The first pair of numbers turns by one radian per position, the last by about 1 / theta.
    """

    theta: Theta = 0.0  # base of the rotary position embeddings; 0: none
    local_theta: Theta = 0.0  # base in layers with local attention; 0: the same

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.rotary.")


@dataclass(frozen=True)
class LocalAttentionConfig:
    """Local attention in most layers. The first layer and every `every`-th one after it see all tokens."""

    window: NonNegative = 0  # tokens to each side that local attention sees; 0: all layers see all tokens
    every: Positive = 1  # one layer in this many sees all tokens, beginning with the first

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.local_attention.")


@dataclass(frozen=True)
class ConvolutionConfig:
    """A convolution of the embeddings, beside the first layer."""

    # width of the convolution beside the first layer, an odd number of tokens; 0: no convolution
    width: NonNegative = 0
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
    """The pooler: a dense layer and an activation, for the [CLS] state of a text or the mean of its states."""

    activation: Annotated[str, OneOf((*ACTIVATIONS, "tanh"))] = "tanh"  # activation of the pooler
    dropout: bool = False  # dropout before the pooler, at the rate head_dropout
    mean: bool = False  # pool the mean of a text's hidden states instead of the state of [CLS]
    norm: bool = False  # LayerNorm after the activation of the pooler
    late: bool = False  # apply the dense layer and the activation to each token, and pool afterwards

    def __post_init__(self):
        check_choices(self, "EncoderConfig.pooler.")


@dataclass(frozen=True)
class EncoderConfig:
    """An encoder. The defaults are those of BERT-base.

    >>> EncoderConfig(hiden_size=512)
    Traceback (most recent call last):
    bert_jax.core.errors.BertJaxError: EncoderConfig has no field "hiden_size"; did you mean "hidden_size"?
    """

    vocab_size: Size = 30522  # number of tokens in the vocabulary
    hidden_size: Size = 768  # size of the hidden states
    num_hidden_layers: SizeOrNone = 12  # number of layers; 0: none, in static embeddings
    num_attention_heads: Size = 12  # number of attention heads
    # number of heads for keys and values, each of which serves several heads for queries; 0: num_attention_heads
    num_key_value_heads: SizeOrNone = 0
    intermediate_size: Size = 3072  # inner size of the feed-forward
    max_position_embeddings: Size = 512  # longest text, in tokens
    type_vocab_size: SizeOrNone = 2  # number of segment types; 0: no segment embeddings
    # size of the embeddings, which a dense layer projects to hidden_size; 0: hidden_size, without that layer
    embedding_size: SizeOrNone = 0
    # position embeddings, added to the word embeddings: learned, sinusoidal, or none; decoder: added in DeBERTa's
    # enhanced mask decoder; alibi: none, and attention scores fall with the distance
    positions: Annotated[str, OneOf(("learned", "sinusoidal", "alibi", "none", "decoder"))] = "learned"
    embedding_norm: bool = True  # LayerNorm of the embeddings
    # activation of the feed-forward; gelu is the exact form, gelu_tanh the approximation
    hidden_act: Activation = "gelu"
    # a dense layer and LayerNorm before the decoder of the masked-LM head, and a bias after it
    mlm_transform: bool = True
    # activation of the masked-LM head; "": that of the feed-forward
    mlm_activation: Annotated[str, OneOf(("", *ACTIVATIONS))] = ""
    rms_norm: bool = (
        False  # RMSNorm in place of LayerNorm: scaled by the root of the mean square, without a bias
    )
    layer_norm_eps: Rate = 1e-12  # epsilon of LayerNorm, added to the variance
    hidden_dropout_prob: Rate = 0.1  # dropout of hidden states
    attention_probs_dropout_prob: Rate = 0.1  # dropout of attention probabilities
    head_dropout: Rate = 0.1  # dropout before a classification head
    tag_dropout: OwnRate = -1.0  # dropout before a tagging head; -1: head_dropout
    answer_dropout: Rate = 0.0  # dropout before a question-answering head
    initializer_range: Rate = 0.02  # standard deviation of the initial weights
    tie_word_embeddings: bool = True  # tie the masked-LM decoder to the word embeddings
    block: Annotated[str, Registered(BLOCKS.names)] = "post_norm"  # kind of layer: the name of a block
    relative: RelativeConfig = RelativeConfig()
    bias: bool = True  # a bias in the dense layers of attention and feed-forward
    norm_bias: bool = True  # a bias in LayerNorm
    # a bias in the dense layers of the masked-LM head and the pooler; output layers always have one
    head_bias: bool = True
    # a dense layer and LayerNorm in tagging and question-answering heads, as in the masked-LM head
    transform: bool = False
    # smaller initial weights where layers add to hidden states: divided by the root of twice the number of layers
    scaled_init: bool = False
    # a gated feed-forward: its activations are multiplied by a second projection; neither projection has a bias
    gated: bool = False
    rotary: RotaryConfig = RotaryConfig()
    local_attention: LocalAttentionConfig = LocalAttentionConfig()
    convolution: ConvolutionConfig = ConvolutionConfig()
    layer_groups: SizeOrNone = 0  # groups of layers that share their parameters; 0: no layer shares them
    pooler: PoolerConfig = field(default_factory=PoolerConfig)

    # How it is computed: none of these changes the saved model.

    attention: AttentionKernelName = (
        "auto"  # attention kernel; auto: the fastest one for this model and device
    )
    # type of computation; parameters, softmax, LayerNorm and losses stay float32; auto: the faster one on this device
    dtype: Annotated[str, OneOf(DTYPES)] = "float32"
    # activations that the backward pass recomputes, to save memory: only norms, all but matrix products, or all
    remat: Annotated[str, OneOf(("none", "dots", "full"))] = "none"
    # compile layers one by one, not as a loop: a fifth faster on a GPU, but slower to compile
    unroll: bool = False
    # pad the word embeddings to a multiple of this; 128 fills a TPU's lanes and divides over chips
    vocab_multiple: Size = 1

    def __new__(cls, *args, **fields):
        field_names = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in field_names:
                raise BertJaxError(f'EncoderConfig has no field "{name}"; {suggest_name(name, field_names)}')
        return super().__new__(cls)

    def __post_init__(self):
        check_ranges(self, "EncoderConfig.")
        for known in dataclasses.fields(self):
            if known.type is bool and type(value := getattr(self, known.name)) is not bool:
                raise BertJaxError(f"EncoderConfig.{known.name} must be True or False, not {value!r:.40}")
        BLOCKS.check(self.block)
        check_choices(self, "EncoderConfig.")
        parts = {
            "hidden_size": ("num_attention_heads", self.num_attention_heads),
            "num_attention_heads": ("num_key_value_heads", self.key_value_heads),
            "num_hidden_layers": ("layer_groups", self.groups),
        }
        for whole, (name, count) in parts.items():
            if (size := getattr(self, whole)) % max(count, 1):
                close = next(n for n in range(min(count, 4096), 0, -1) if size % n == 0)
                raise BertJaxError(
                    f"EncoderConfig.{name} = {count} does not divide {whole} = {size}; {close} does"
                )
        if self.rotary.theta and self.head_size % 2:
            raise BertJaxError(
                f"EncoderConfig.rotary rotates pairs of numbers: the head size must be even, not {self.head_size}"
            )
        if not self.num_hidden_layers and self.positions != "none":
            raise BertJaxError(
                "EncoderConfig.num_hidden_layers must be at least 1, not 0; only static embeddings, without positions, "
                "have no layers"
            )
        if self.positions == "alibi" and self.relative.terms:
            raise BertJaxError(
                "EncoderConfig.positions = alibi and EncoderConfig.relative.terms both add to attention scores; "
                "leave one of them out"
            )
        # 0 means the same, and configs that mean the same should be equal.
        if self.layer_groups == self.num_hidden_layers:
            object.__setattr__(self, "layer_groups", 0)
        if self.num_key_value_heads == self.num_attention_heads:
            object.__setattr__(self, "num_key_value_heads", 0)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def key_value_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def computed_dtype(self) -> str:
        """`dtype`, or the type that "auto" stands for on this device."""
        if self.dtype != "auto":
            return self.dtype
        from bert_jax.models.mesh import platform
        from bert_jax.models.precision import fast_dtype

        return fast_dtype(platform())

    @property
    def groups(self) -> int:
        """The number of groups of layers. Each group has its own parameters."""
        return self.layer_groups or self.num_hidden_layers

    @property
    def padded_vocab(self) -> int:
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    def replace(self, **changes) -> "EncoderConfig":
        return dataclasses.replace(self, **changes)

    @property
    def architecture(self) -> dict[str, Any]:
        """The fields that say what the model is, not how it is computed or trained, by dotted names."""
        values = {known.name: getattr(self, known.name) for known in dataclasses.fields(self)}
        return flattened(
            {
                name: value
                for name, value in values.items()
                if name not in (*COMPUTATION_FIELDS, *TRAINING_FIELDS)
            }
        )

    @property
    def changed_fields(self) -> dict[str, Any]:
        """The fields that differ from the defaults, as nested dicts."""
        values, default = dataclasses.asdict(self), dataclasses.asdict(EncoderConfig())
        return {name: value for name, value in values.items() if value != default[name]}

    @classmethod
    def from_size(cls, size: str, **changes) -> "EncoderConfig":
        """Return the config of a published size: tiny, mini, small, medium, base or large.

        >>> EncoderConfig.from_size("tiny").num_hidden_layers
        2
        """
        if size not in BERT_SIZES:
            raise BertJaxError(f'no size "{size}"; {suggest_name(size, BERT_SIZES)}')
        layers, hidden_size = BERT_SIZES[size]
        # Every published size has heads of 64 numbers and a feed-forward four times as wide as the hidden states.
        return cls(**layer_sizes(layers, hidden_size, hidden_size // 64, 4 * hidden_size) | changes)


def layer_sizes(
    layers: int, hidden_size: int, heads: int, intermediate_size: int, **others
) -> dict[str, Any]:
    """Return the sizes of a model's layers, and other fields, by the names of `EncoderConfig`."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden_size,
        "num_attention_heads": heads,
        "intermediate_size": intermediate_size,
        **others,
    }


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values by dotted names, including those of nested configs.

    >>> flattened({"num_hidden_layers": 2, "convolution": ConvolutionConfig()})
    {'num_hidden_layers': 2, 'convolution.width': 0, 'convolution.activation': 'tanh'}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(value):
            nested = {inner.name: getattr(value, inner.name) for inner in dataclasses.fields(value)}
            flat |= flattened(nested, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


BERT_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
