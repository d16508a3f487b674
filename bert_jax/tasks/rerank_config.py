"""The config of the training of a cross-encoder."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from bert_jax.config import NotNegative, OneOf, Range, Share, check_ranges
from bert_jax.data.examples.arrange import RowLayout
from bert_jax.data.examples.candidates import CandidateColumns
from bert_jax.errors import BertJaxError, check_name
from bert_jax.ranking_losses import LOSSES
from bert_jax.tasks.epochs_config import Dropout, EpochsConfig, ModelConfig


@dataclass(frozen=True)
class CandidatesConfig:
    train: str = ""  # training data: a file, a folder of files, or tfds:NAME/CONFIG:SPLIT
    heldout: str = ""  # validation set, given as the training data are; "": a share of them
    heldout_share: Share = 0.1  # share of the queries that becomes the validation set
    # share of the other queries that probabilities are calibrated on; 0: none
    calibration_share: Annotated[float, Range(0, 1, below=True)] = 0.05
    columns: CandidateColumns = field(default_factory=CandidateColumns)
    most: NotNegative = 0  # queries that are used, drawn at random, the same for every seed; 0: all
    # documents of other queries that each query gets as not relevant; -1: 4 where all documents are relevant, else none
    others: Annotated[int, Range(-1, 1000)] = -1
    documents: NotNegative = 0  # most documents of a query, relevant ones first; 0: all
    batch: Annotated[int, Range(1, 1 << 20)] = 16  # queries a step, each with its documents
    max_length: Annotated[int, Range(1, 1 << 20)] = 256  # tokens of a pair; longer documents are truncated
    # how pairs stand in rows; packed: several in a row, bucketed: one in each, as long as the longest of its step,
    # padded: one in each, all of one length; what is learnt is the same
    rows: RowLayout = "packed"

    def __post_init__(self):
        check_ranges(self, "data.")
        if not self.heldout and not 0 < self.heldout_share < 1:
            raise BertJaxError(
                f"data.heldout_share must be between 0 and 1, not {self.heldout_share}; or name a file, data.heldout"
            )


@dataclass(frozen=True)
class CrossEncoderConfig(ModelConfig):
    head_dropout: Dropout = -1.0  # dropout before the head; -1: that of `init`


@dataclass(frozen=True)
class LossConfig:
    # loss; auto: teacher_ranking for scores of a teacher, binary for relevant or not, lambda_rank for grades
    name: Annotated[str, OneOf(("auto", *LOSSES))] = "auto"
    scale: Annotated[float, Range(0, 1e6)] = 0.0  # factor of the logits; 0: that of the loss

    def __post_init__(self):
        check_ranges(self, "loss.")
        if self.name != "auto":
            check_name(self.name, LOSSES, "loss")


@dataclass(frozen=True)
class RerankConfig(EpochsConfig):
    usual_epochs: ClassVar[float] = 1.0
    # On pairs of Cranfield MiniLM had an MRR@10 of .620 after 60 steps of 32 pairs, .703 after 116; chance is .457.
    least_steps: ClassVar[int] = 120
    # A cross-encoder learns from an embedder something new, the words that query and document share. After 62 steps of
    # 32 pairs MiniLM (384 wide) had an MRR@10 of .335 with 6e-5, .813 with 2e-4, .844 with 4e-4; chance is .29.
    usual_rate: ClassVar[float] = 5e-5
    rate_power: ClassVar[int] = 2

    init: str = ""
    report: bool = True  # writes WORKDIR/report when the run has ended
    model: CrossEncoderConfig = field(default_factory=CrossEncoderConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: CandidatesConfig = field(default_factory=CandidatesConfig)

    @property
    def batch(self) -> int:
        return self.data.batch
