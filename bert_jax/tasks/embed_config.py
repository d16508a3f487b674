"""The config of the training of an embedder."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from bert_jax.config import NotNegative, Range, Share, check_ranges
from bert_jax.data.examples.arrange import RowLayout
from bert_jax.data.examples.groups import GroupColumns
from bert_jax.embedding_losses import LOSSES
from bert_jax.errors import BertJaxError, check_name
from bert_jax.tasks.epochs_config import EpochsConfig, ModelConfig


@dataclass(frozen=True)
class GroupsConfig:
    # A file, a folder of files, or tfds:NAME/CONFIG:SPLIT; of several each step takes its groups from one.
    train: tuple[str, ...] = ()
    shares: Annotated[
        tuple[float, ...], Range(0, 1e6, above=True)
    ] = ()  # of the steps; (): as many as its groups
    heldout: str = ""  # likewise; "" holds out a share of train, by document
    heldout_share: Share = 0.1
    columns: GroupColumns = field(default_factory=GroupColumns)
    most: NotNegative = 0  # groups of each in train that are used, drawn at random whatever the seed; 0: all
    batch: Annotated[int, Range(1, 1 << 20)] = 64  # groups of a step; each has all others for negatives
    max_length: Annotated[int, Range(1, 1 << 20)] = 128  # tokens of a text; longer ones are truncated
    rows: RowLayout = "packed"  # how a step's groups stand in its rows; what is learnt is the same

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

    pooling: Literal["auto", "mean", "cls", "mean_sqrt_len", "weighted_mean", "last"] = "auto"
    normalize: Literal["auto", "yes", "no"] = (
        "auto"  # whether the vectors of the finished model have length 1
    )
    dimensions: NotNegative = (
        0  # of the vectors: a dense layer behind the pooling gives so many; 0: the model's own
    )


@dataclass(frozen=True)
class PromptsConfig:
    """What is put before texts, such as "query: "; the finished model knows both by their names."""

    query: str = ""  # before anchors
    document: str = ""  # before all other texts


@dataclass(frozen=True)
class LossConfig:
    name: str = "auto"  # of LOSSES; auto: cosent for two texts with a score, else multiple_negatives
    scale: Annotated[float, Range(0, 1e6)] = 0.0  # of cosines, 1 / temperature; 0: the loss's own
    margin: Annotated[float, Range(0, 1e6)] = 0.0  # 0: the loss's own
    symmetric: bool = False  # multiple_negatives: positives find their anchors, too
    learn_scale: bool = False  # multiple_negatives, guided: scale is where it begins
    teacher: str = ""  # guided, teacher_vectors: the directory of an embedder whose vectors they learn from
    # Numbers of leading dimensions that should do as vectors, with the whole width or without it (Matryoshka); ():
    # the whole width alone.
    sizes: tuple[int, ...] = ()

    def __post_init__(self):
        check_ranges(self, "loss.")
        if self.name != "auto":
            check_name(self.name, LOSSES, "loss")
            if self.teacher and not LOSSES[self.name].taught:
                raise BertJaxError(f"loss.name={self.name} has no use for loss.teacher; leave it out")
            if LOSSES[self.name].taught and not self.teacher:
                raise BertJaxError(
                    f"loss.name={self.name} learns from an embedder; name its directory, --config.loss.teacher=DIR"
                )


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
