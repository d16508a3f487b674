"""The config of the training of an embedder."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from bert_jax.config import NotNegative, OneOf, Range, Share, check_ranges
from bert_jax.data.examples.arrange import RowLayout
from bert_jax.data.examples.groups import GroupColumns
from bert_jax.embedding_losses import LOSSES
from bert_jax.errors import BertJaxError, check_name
from bert_jax.tasks.epochs_config import EpochsConfig, ModelConfig


@dataclass(frozen=True)
class GroupsConfig:
    # training data: files, folders of files, or tfds:NAME/CONFIG:SPLIT; each step takes its groups from one of them
    train: tuple[str, ...] = ()
    # share of the steps that each of the training files gets; (): by its number of groups
    shares: Annotated[tuple[float, ...], Range(0, 1e6, above=True)] = ()
    heldout: str = ""  # validation set, given as the training data are; "": a share of them
    heldout_share: Share = 0.1  # share of the training data, by document, that becomes the validation set
    columns: GroupColumns = field(default_factory=GroupColumns)
    # groups of each training file that are used, drawn at random, the same for every seed; 0: all
    most: NotNegative = 0
    # groups a step; each has the texts of all others as negatives
    batch: Annotated[int, Range(1, 1 << 20)] = 64
    max_length: Annotated[int, Range(1, 1 << 20)] = 128  # tokens of a text; longer ones are truncated
    # how texts stand in rows; packed: several in a row, bucketed: one in each, as long as the longest of its step,
    # padded: one in each, all of one length; what is learnt is the same
    rows: RowLayout = "packed"

    def __post_init__(self):
        check_ranges(self, "data.")
        if self.shares and len(self.shares) != len(self.train):
            raise BertJaxError(
                f"data.shares holds {len(self.shares)} numbers and data.train names {len(self.train)} files; give each "
                "file one"
            )
        if not self.heldout and not 0 < self.heldout_share < 1:
            raise BertJaxError(
                f"data.heldout_share must be between 0 and 1, not {self.heldout_share}; or name a file, data.heldout"
            )


@dataclass(frozen=True)
class EmbedderConfig(ModelConfig):
    """How texts become vectors, too; "auto" is the directory's own."""

    # how the states of a text become its vector; auto: as `init` does, else their mean
    pooling: Literal["auto", "mean", "cls", "mean_sqrt_len", "weighted_mean", "last"] = "auto"
    normalize: Literal["auto", "yes", "no"] = "auto"  # whether vectors have length 1; auto: as `init` says
    # dimensions of the vectors, by a dense layer after the pooling; 0: those of `init`
    dimensions: NotNegative = 0


@dataclass(frozen=True)
class PromptsConfig:
    """What is put before texts, such as "query: "; the finished model knows both by their names."""

    # text that is put before anchors, such as "query: "; both "": the prompts of `init`
    query: str = ""
    document: str = ""  # text that is put before all other texts; both "": the prompts of `init`


@dataclass(frozen=True)
class LossConfig:
    # loss; auto: cosent for two texts with a score, teacher_ranking for more texts, else multiple_negatives
    name: Annotated[str, OneOf(("auto", *LOSSES))] = "auto"
    scale: Annotated[float, Range(0, 1e6)] = 0.0  # factor of cosines, 1 / temperature; 0: that of the loss
    margin: Annotated[float, Range(0, 1e6)] = 0.0  # margin of losses that have one; 0: that of the loss
    symmetric: bool = False  # positives find their anchors, too (multiple_negatives)
    learn_scale: bool = False  # trains the scale, beginning at loss.scale (multiple_negatives, guided)
    teacher: str = ""  # directory of the embedder that guided and teacher_vectors learn from
    # numbers of leading dimensions that also work as vectors (Matryoshka); (): the whole width alone
    sizes: tuple[int, ...] = ()

    def __post_init__(self):
        check_ranges(self, "loss.")
        if self.name == "auto":
            if self.teacher:
                taught = " or ".join(name for name, loss in LOSSES.items() if loss.taught)
                raise BertJaxError(
                    f"loss.teacher is for loss.name={taught}; name one of them, or leave it out"
                )
            return
        check_name(self.name, LOSSES, "loss")
        loss = LOSSES[self.name]
        if self.teacher and not loss.taught:
            raise BertJaxError(f"loss.name={self.name} has no use for loss.teacher; leave it out")
        if loss.taught and not self.teacher:
            raise BertJaxError(
                f"loss.name={self.name} learns from an embedder; name its directory, --config.loss.teacher=DIR"
            )
        if loss.whole and self.sizes:
            raise BertJaxError(f"loss.name={self.name} compares whole vectors; leave loss.sizes out")


@dataclass(frozen=True)
class EmbedConfig(EpochsConfig):
    usual_epochs: ClassVar[float] = 1.0

    init: str = ""
    model: EmbedderConfig = field(default_factory=EmbedderConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: GroupsConfig = field(default_factory=GroupsConfig)
    prompts: PromptsConfig = field(default_factory=PromptsConfig)

    @property
    def batch(self) -> int:
        return self.data.batch
