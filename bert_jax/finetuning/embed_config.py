"""The config for training an embedder."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

from bert_jax.core.config import NonNegative, OneOf, Range, Share, check_ranges
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.group_columns import GroupColumns
from bert_jax.data.examples.row_packing import RowLayout
from bert_jax.finetuning.epochs_config import GoingOnConfig, InitEncoderConfig, check_validation
from bert_jax.hub.layout import Layout
from bert_jax.losses.embedding import EMBEDDING_LOSSES
from bert_jax.training.processes import print_once

MAX_LENGTH = 256  # tokens of a text that training reads unless it is told otherwise


@dataclass(frozen=True)
class GroupsConfig:
    # training data: files, folders of files, or tfds:NAME/CONFIG:SPLIT; each step takes its groups from one of them
    train: tuple[str, ...] = ()
    # share of the steps that each training file gets; (): in proportion to its number of groups
    mixture_weights: Annotated[tuple[float, ...], Range(0, 1e6, exclusive_minimum=True)] = ()
    validation: str = ""  # validation set, in the same form as data.train; "": a share of the training data
    validation_ratio: Share = 0.1  # share of the training data, by document, that becomes the validation set
    columns: GroupColumns = field(default_factory=GroupColumns)
    # number of groups to use from each training file, drawn at random, the same for every seed; 0: all
    max_examples: NonNegative = 0
    # groups per step; the texts of other groups are negatives (multiple_negatives, guided)
    batch_size: Annotated[int, Range(1, 1 << 20)] = 64
    # maximum number of tokens in a text; longer ones are truncated; 0: as many as `init` reads, but at most 256
    max_length: Annotated[int, Range(0, 1 << 20)] = 0
    # how texts are put into rows; packed: several per row; bucketed: one per row, rows as long as the longest of the
    # step; padded: one per row, all rows of one length; the choice does not change what is learnt
    batching: RowLayout = "packed"

    def __post_init__(self):
        check_ranges(self, "data.")
        if self.mixture_weights and len(self.mixture_weights) != len(self.train):
            raise BertJaxError(
                f"data.mixture_weights holds {len(self.mixture_weights)} numbers, but data.train names "
                f"{len(self.train)} files; give one number for each file"
            )
        check_validation(self.validation, self.validation_ratio)


@dataclass(frozen=True)
class EmbedderConfig(InitEncoderConfig):
    """How the encoder computes, and how texts become vectors; "auto" keeps what the directory says."""

    # how hidden states are pooled into the vector of a text; auto: as in `init`, else their mean
    pooling: Literal["auto", "mean", "cls", "mean_sqrt_len", "weighted_mean", "last"] = "auto"
    # whether vectors are scaled to length 1; auto: as in `init`
    normalize: Literal["auto", "yes", "no"] = "auto"
    # dimensions of the vectors, set by a dense layer after the pooling; 0: as in `init`
    dimensions: NonNegative = 0


@dataclass(frozen=True)
class PromptsConfig:
    """The text to put before texts; the finished model offers both prompts by their names."""

    # text to put before anchors, such as "query: "; if both prompts are "", those of `init`
    query: str = ""
    document: str = ""  # text to put before all other texts; if both prompts are "", those of `init`


@dataclass(frozen=True)
class EmbeddingLossConfig:
    # loss; auto: cosent for pairs with a score, teacher_ranking for more texts with scores, else multiple_negatives
    name: Annotated[str, OneOf(("auto", *EMBEDDING_LOSSES))] = "auto"
    # factor of cosines, 1 / temperature; 0: the usual one of the loss
    scale: Annotated[float, Range(0, 1e6)] = 0.0
    # margin of losses that have one; 0: the usual one of the loss
    margin: Annotated[float, Range(0, 1e6)] = 0.0
    # train in both directions: positives also find their anchors (multiple_negatives)
    symmetric: bool = False
    learn_scale: bool = False  # train the scale, starting from loss.scale (multiple_negatives, guided)
    teacher: str = ""  # directory of the embedder that guided and teacher_vectors learn from
    # numbers of leading dimensions that also work as vectors (Matryoshka); (): only the full width
    sizes: tuple[int, ...] = ()

    def __post_init__(self):
        check_ranges(self, "loss.")
        if self.name == "auto":
            if self.teacher:
                taught = " or ".join(name for name, loss in EMBEDDING_LOSSES.items() if loss.teacher_texts)
                raise BertJaxError(
                    f"loss.teacher is for loss.name={taught}; name one of them, or leave it out"
                )
            return
        check_name(self.name, EMBEDDING_LOSSES, "loss")
        loss = EMBEDDING_LOSSES[self.name]
        if self.teacher and not loss.teacher_texts:
            raise BertJaxError(f"loss.name={self.name} does not use loss.teacher; leave it out")
        if loss.teacher_texts and not self.teacher:
            raise BertJaxError(
                f"loss.name={self.name} needs a teacher; name the directory of an embedder, --config.loss.teacher=DIR"
            )
        if loss.full_vectors and self.sizes:
            raise BertJaxError(f"loss.name={self.name} compares whole vectors; leave loss.sizes out")


@dataclass(frozen=True)
class EmbedConfig(GoingOnConfig):
    default_epochs: ClassVar[float] = 1.0
    base_learning_rate: ClassVar[float] = 3e-5  # for a model as wide as BERT-base

    init: str = ""
    model: EmbedderConfig = field(default_factory=EmbedderConfig)
    loss: EmbeddingLossConfig = field(default_factory=EmbeddingLossConfig)
    data: GroupsConfig = field(default_factory=GroupsConfig)
    prompts: PromptsConfig = field(default_factory=PromptsConfig)

    @property
    def batch_size(self) -> int:
        return self.data.batch_size

    @property
    def example_columns(self) -> ExampleColumns:
        return self.data.columns.pair_columns

    @property
    def slow_to_open(self) -> bool:
        return bool(self.loss.teacher)

    def resolve_length(self, init: Layout) -> Self:
        """Return the config with the number of tokens that texts are read up to."""
        if self.data.max_length:
            return self
        most = (init.embedder and init.embedder.max_length) or init.config.max_position_embeddings
        length = min(most, MAX_LENGTH)
        print_once(
            f"texts are read up to {pluralize(length, 'token')}; {self.init} reads {most:,}, and "
            "--config.data.max_length sets another number"
        )
        return replace(self, data=replace(self.data, max_length=length))
