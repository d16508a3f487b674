"""The config of the fine-tunings."""

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from bert_jax.config import NotNegative, Range, Share, check_ranges
from bert_jax.data.examples.arrange import RowLayout
from bert_jax.data.examples.columns import Columns
from bert_jax.errors import BertJaxError
from bert_jax.predictions.kind import Kind
from bert_jax.tasks.epochs_config import HIGHEST_RATE, Dropout, EpochsConfig, ModelConfig

Method = Literal["finetune", "contrast", "probe"]
# Contrast on up to FEW texts is best at the rate of fine-tuning, on more at up to HIGHER times that: with the 6-layer
# MiniLM, 16 and 32 texts of SST-2 lost two to three points of accuracy at 2.5 times the rate, and 80 to 160 texts of
# SST-2 and GoEmotions gained one to six.
FEW, HIGHER = 32, 2.5


@dataclass(frozen=True)
class ExamplesConfig:
    train: str = ""  # training data: a file, a folder, a glob, or tfds:NAME/CONFIG:SPLIT
    heldout: str = ""  # validation set, given as the training data are; "": a share of them
    heldout_share: Share = 0.1  # share of the training data, by document, that becomes the validation set
    # share of the other documents that probabilities are calibrated on; 0: none
    calibration_share: Annotated[float, Range(0, 1, below=True)] = 0.05
    # parts of a cross-validation: a model that learnt from the others predicts each, for scores and calibration; 0: the
    # validation set is used; -1: 5 for fewer than 2,000 examples, else 0
    folds: Annotated[int, Range(-1, 100)] = -1
    fold: Annotated[int, Range(-1, 99)] = -1  # fold that this run leaves out, from 0; -1: none
    foreign: str = ""  # file of texts that the model should refuse; the report says how well it knows them
    columns: Columns = field(default_factory=Columns)
    most: NotNegative = 0  # training examples that are used, drawn at random, the same for every seed; 0: all
    batch: Annotated[int, Range(1, 1 << 20)] = 32  # examples a step
    max_length: Annotated[int, Range(1, 1 << 20)] = 128  # tokens of an example, or of a window of it
    long: Literal["cut", "windows"] = "cut"  # longer texts are truncated, or read in windows
    overlap: NotNegative = 32  # tokens that neighbouring windows share
    # how examples stand in rows; packed: several in a row, bucketed: one in each, as long as the longest of its step,
    # padded: one in each, all of one length; what is learnt is the same
    rows: RowLayout = "packed"

    def __post_init__(self):
        check_ranges(self, "data.")
        if not self.train:
            raise BertJaxError(
                "config key data.train is missing; give a file, --config.data.train=train.csv, or tfds:NAME:SPLIT"
            )
        if self.folds == 1:
            raise BertJaxError("data.folds is 1; at least 2 are needed, or 0 for a split")
        if 0 <= self.fold >= self.folds:
            raise BertJaxError(
                f"data.fold={self.fold} is not one of data.folds={self.folds}, which count from 0"
            )
        if not self.heldout and not 0 < self.heldout_share < 1:
            raise BertJaxError(
                f"data.heldout_share must be between 0 and 1, not {self.heldout_share}; or name a file, data.heldout"
            )


@dataclass(frozen=True)
class HeadConfig(ModelConfig):
    """What the head reads, too."""

    # what the head reads of a text: the mean of its states, the state of [CLS], or, published, what models of this
    # family read, as transformers opens them; auto: as an embedder pools, else published
    pooling: Literal["auto", "published", "mean", "cls"] = "auto"
    # the texts of a pair in one sequence (a cross-encoder), or apart (a bi-encoder), whose head reads the difference of
    # their vectors; auto: apart where `init` is an embedder and there are folds
    pairs: Literal["auto", "together", "apart"] = "auto"
    head_dropout: Dropout = -1.0  # dropout before the head; -1: that of `init`


@dataclass(frozen=True)
class FinetuneConfig(EpochsConfig):
    report: bool = True  # writes WORKDIR/report when the run has ended
    model: HeadConfig = field(default_factory=HeadConfig)
    # what is trained; probe: the head alone, a regression on the frozen encoder, in seconds; contrast: the encoder
    # learns which texts are of one class, then the head is a probe, for few labels; auto: what predicts better in the
    # folds, or in one of them for more examples but fewer than 1,000 of each class; else finetune
    method: Literal["auto", "finetune", "contrast", "probe"] = "auto"
    # head at the start: a probe, or that of `init` (random if it has none)
    head: Literal["probe", "kept"] = "probe"
    data: ExamplesConfig = field(default_factory=ExamplesConfig)

    def __post_init__(self):
        super().__post_init__()
        if self.method in ("probe", "contrast") and self.head == "kept":
            raise BertJaxError(f"method={self.method} makes a new head; leave --config.head=kept out")
        if self.method == "probe" and self.predicts.link is None:
            raise BertJaxError(f"a probe cannot learn {self.predicts.name}; leave --config.method=probe out")
        asked = self.sweep or self.patience or self.checkpoints.best or self.seeds > 1
        if self.method == "contrast" and asked:
            raise BertJaxError(
                "method=contrast fits its head when the run has ended, so nothing is measured before; leave sweep, "
                "seeds, patience and checkpoints.best out"
            )
        if self.method == "contrast" and self.model.pairs == "apart":
            raise BertJaxError("method=contrast encodes pairs together; leave model.pairs=apart out")
        if self.method == "contrast" and not self.predicts.contrasts:
            raise BertJaxError(f"method=contrast is for one class a text, not for {self.predicts.name}")

    @property
    @abstractmethod
    def predicts(self) -> type[Kind]:
        """The kind of its predictions."""

    @property
    def chooses(self) -> bool:
        """Whether folds are trained before the run itself."""
        return self.data.folds > 0 and self.data.fold < 0

    @property
    def leaves_method(self) -> bool:
        """Whether the data may decide the method, also where no folds are asked for."""
        asked = self.method != "auto" or self.head == "kept" or self.data.folds >= 0
        return not (asked or self.patience or self.checkpoints.best)

    def usual_rate_of(self, width: int, examples: int) -> float:
        rate = super().usual_rate_of(width, examples)
        higher = min(max(examples / FEW, 1), HIGHER) if self.method == "contrast" else 1
        return min(rate * higher, HIGHEST_RATE)

    def with_method(self, method: Method) -> Self:
        return dataclasses.replace(self, method=method, steps=0 if method == "probe" else self.steps)

    @property
    def batch(self) -> int:
        return self.data.batch

    def steps_of(self, examples: int) -> int:
        return 0 if self.method == "probe" else super().steps_of(examples)
