"""The config of the training of a cross-encoder."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from bert_jax.config import NotNegative, Range, Share, check_ranges
from bert_jax.data.examples.arrange import RowLayout
from bert_jax.data.examples.candidates import CandidateColumns
from bert_jax.errors import BertJaxError, check_name
from bert_jax.ranking_losses import LOSSES
from bert_jax.tasks.epochs_config import Dropout, EpochsConfig, ModelConfig


@dataclass(frozen=True)
class CandidatesConfig:
    train: str = ""  # a file, a folder of files, or tfds:NAME/CONFIG:SPLIT
    heldout: str = ""  # likewise; "" holds out a share of the queries
    heldout_share: Share = 0.1
    # Of the queries left to train on, kept to learn how far the probabilities can be trusted; 0: none.
    calibration_share: Annotated[float, Range(0, 1, below=True)] = 0.05
    columns: CandidateColumns = field(default_factory=CandidateColumns)
    most: NotNegative = 0  # queries of train that are used, drawn at random whatever the seed; 0: all
    # Documents of other queries that each gets as not relevant; -1: 4 if no document is not relevant, else none.
    others: Annotated[int, Range(-1, 1000)] = -1
    documents: NotNegative = 0  # of a query at most, the relevant ones first; 0: all
    batch: Annotated[int, Range(1, 1 << 20)] = 16  # queries of a step, each with its documents
    max_length: Annotated[int, Range(1, 1 << 20)] = (
        256  # tokens of a pair; of longer ones the document is truncated
    )
    rows: RowLayout = "packed"  # how a step's pairs stand in its rows; what is learnt is the same

    def __post_init__(self):
        check_ranges(self, "data.")
        if not self.heldout and not 0 < self.heldout_share < 1:
            raise BertJaxError(
                f"data.heldout_share must be between 0 and 1, not {self.heldout_share}; or name a file, data.heldout"
            )


@dataclass(frozen=True)
class CrossEncoderConfig(ModelConfig):
    head_dropout: Dropout = -1.0


@dataclass(frozen=True)
class LossConfig:
    # Of LOSSES; auto: teacher_ranking where the data hold a teacher's scores, binary where documents are relevant or
    # not, lambda_rank where they are so by grades.
    name: str = "auto"
    scale: Annotated[float, Range(0, 1e6)] = 0.0  # of the logits; 0: the loss's own

    def __post_init__(self):
        check_ranges(self, "loss.")
        if self.name != "auto":
            check_name(self.name, LOSSES, "loss")


@dataclass(frozen=True)
class RerankConfig(EpochsConfig):
    usual_epochs: ClassVar[float] = 1.0

    init: str = ""
    report: bool = True  # writes WORKDIR/report when the run has ended
    model: CrossEncoderConfig = field(default_factory=CrossEncoderConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: CandidatesConfig = field(default_factory=CandidatesConfig)

    @property
    def batch(self) -> int:
        return self.data.batch
