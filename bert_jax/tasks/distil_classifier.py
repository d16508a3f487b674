"""Distillation of a fine-tuned classifier: a smaller model learns its predictions for texts, with or without labels.

The teacher reads each text once, before the first step, so it may be of another family and have another tokenizer.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from bert_jax.core.config import NonNegative, Range, Share
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example, ExampleLabel
from bert_jax.data.examples.labelled_texts import read_labelled_texts
from bert_jax.data.examples.row_packing import EncodedWindow, Target
from bert_jax.finetuning.distillation import keep_layers
from bert_jax.finetuning.finetune_config import HeadConfig
from bert_jax.finetuning.finetune_data import open_data
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.losses.distillation import soft_binary_cross_entropy, soft_cross_entropy
from bert_jax.losses.loss import Loss, squared_error, weighted_loss
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.predictions.calibration import UNCALIBRATED
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.whole_text_kind import WholeTextKind, require_distillable
from bert_jax.tasks.classify import Config as ClassifyConfig
from bert_jax.training.processes import print_once

TEACHER_LOGITS = "teacher_logits"  # target: the teacher's logits
HAS_LABEL = "labelled"  # target: whether the label comes from the data, not from the teacher


@dataclass(frozen=True)
class StudentClassifierConfig(HeadConfig):
    # number of layers; 0: as in `init`, or half as many if `init` is the teacher
    num_hidden_layers: NonNegative = 0

    def update_encoder(self, encoder: EncoderConfig, longest: int, init: str) -> EncoderConfig:
        if self.num_hidden_layers > encoder.num_hidden_layers:
            raise BertJaxError(
                f"model.num_hidden_layers is {self.num_hidden_layers}, but {init} has "
                f"{encoder.num_hidden_layers} layers; set "
                f"--config.model.num_hidden_layers={encoder.num_hidden_layers} or fewer"
            )
        layers = self.num_hidden_layers or encoder.num_hidden_layers
        return super().update_encoder(encoder, longest, init).replace(num_hidden_layers=layers)


@dataclass(frozen=True)
class Config(ClassifyConfig):
    default_epochs: ClassVar[float] = 5.0

    teacher: str = ""  # directory of the fine-tuned classifier
    init: str = ""  # model directory that the student starts from; "": the teacher, with fewer layers
    # temperature of both models' probabilities
    temperature: Annotated[float, Range(0, 1000, exclusive_minimum=True)] = 2.0
    # weight of the loss on the labels in the data; the loss on the teacher's predictions gets 1 - labels_weight
    labels_weight: Share = 0.0
    model: StudentClassifierConfig = field(default_factory=StudentClassifierConfig)

    def __post_init__(self):
        if not self.teacher:
            raise BertJaxError(
                "config key teacher is missing; name the directory of a fine-tuned classifier, --config.teacher=DIR"
            )
        if not self.init:
            object.__setattr__(self, "init", self.teacher)
        if self.data.folds > 0 or self.method not in ("auto", "finetune"):
            raise BertJaxError(
                "distil_classifier has no folds and no choice of method; leave data.folds and method out"
            )
        if self.class_weights != "none" or self.label_smoothing:
            raise BertJaxError(
                "class_weights and label_smoothing do not apply to a teacher's probabilities; leave them out"
            )
        super().__post_init__()

    @property
    def auto_method(self) -> bool:
        return False


@dataclass(frozen=True)
class ClassifierDistillTask(FinetuneTask):
    temperature: float = field(default=2.0, kw_only=True)
    labels_weight: float = field(default=0.0, kw_only=True)
    # the encoder of the model that the student starts from
    start_encoder: EncoderConfig | None = field(default=None, kw_only=True)

    def initial_params(self, params: dict, data: Epochs, steps: int) -> dict:
        if self.start_encoder is not None:
            params = keep_layers(params, self.start_encoder, self.layout.config)
        return super().initial_params(params, data, steps)

    @property
    def targets(self) -> dict[str, Target]:
        logits = Target("float32", (len(self.kind.labels),))
        return self.kind.targets.arrays | {TEACHER_LOGITS: logits, HAS_LABEL: Target("float32")}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        logits, share = outputs[self.head], self.labels_weight
        soft = soft_loss(self.kind, logits, batch[TEACHER_LOGITS], batch["label_weights"], self.temperature)
        losses = {"teacher_loss": Loss((1 - share) * soft.total, soft.weight)}
        if share:
            hard = self.kind.targets.loss(logits, batch, batch["label_weights"] * batch[HAS_LABEL])
            losses["label_loss"] = Loss(share * hard.total, hard.weight)
        return losses

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        scores = super().scores(outputs, batch)
        if self.kind.link == "softmax":
            same = outputs[self.head].argmax(-1) == batch[TEACHER_LOGITS].argmax(-1)
            scores["agreement"] = weighted_loss(same.astype("float32"), batch["label_weights"])
        return scores


def soft_loss(kind: Kind, logits, teacher_logits, weight, temperature: float) -> Loss:
    if kind.link == "softmax":
        return soft_cross_entropy(logits, teacher_logits, weight, temperature)
    if kind.link == "sigmoid":
        return soft_binary_cross_entropy(logits, teacher_logits, weight, temperature)
    return squared_error(logits[..., 0], teacher_logits[..., 0], weight)


def open(config: Config, directories: ModelDirectories) -> tuple[ClassifierDistillTask, Epochs, Config]:
    init, teacher = directories[config.init], load(directories[config.teacher])
    teacher_reader = TeacherReader(
        teacher, require_distillable(teacher.kind, config.teacher), config.data.long_texts
    )
    config = complete_config(config, teacher, teacher_reader)
    plain, data, config = open_data(
        config, init, teacher_reader.kind.labels, read_examples=teacher_reader.read_examples
    )
    task = ClassifierDistillTask(
        **vars(plain),
        temperature=config.temperature,
        labels_weight=config.labels_weight,
        start_encoder=init.layout.config,
    )
    assert task.finish_inputs is not None
    data.targets = task.targets
    data.train = teacher_reader.add_teacher_targets(data.train, task.finish_inputs.train)
    data.validation = teacher_reader.add_teacher_targets(data.validation, task.finish_inputs.validation)
    return task, data, config


def complete_config(config: Config, teacher: Encoder, teacher_reader: "TeacherReader") -> Config:
    """Return the config with the values that follow from the teacher and from whether the texts have labels."""
    student, data = config.model, dataclasses.replace(config.data, folds=0)
    if config.init == config.teacher and not student.num_hidden_layers:
        student = dataclasses.replace(
            student, num_hidden_layers=max(teacher.config.num_hidden_layers // 2, 1)
        )
    config = dataclasses.replace(
        config,
        problem_type=teacher_reader.kind.problem_type or teacher_reader.kind.name,
        model=student,
        data=data,
    )
    examples = teacher_reader.read_examples(data.train, data.columns, data.max_examples)
    if any(example.where in teacher_reader.labelled_locations for example in examples):
        return config
    if config.labels_weight:
        raise BertJaxError(f"{data.train} has no labels; leave labels_weight out")
    print_once(
        "the texts have no labels: scores measure agreement with the teacher; the student is not calibrated"
    )
    return dataclasses.replace(config, report=False, data=dataclasses.replace(data, calibration_ratio=0.0))


class TeacherReader:
    """Reads texts and runs the teacher on them; its predictions stand in for missing labels."""

    def __init__(self, teacher: Encoder, kind: WholeTextKind, long_texts: str):
        self.teacher, self.kind, self.long_texts = teacher, kind, long_texts
        self.teacher_logits: dict[Any, np.ndarray] = {}  # text or pair -> logits
        # places (`Example.where`) of the examples whose label comes from the data
        self.labelled_locations: set[str] = set()
        self.examples: dict[tuple, list[Example]] = {}

    def read_examples(self, spec: str, columns: ExampleColumns, most: int = 0) -> list[Example]:
        if (spec, most) not in self.examples:
            label_format = self.kind.reader.label_format
            self.examples[spec, most] = self.label_with_teacher(
                read_labelled_texts(spec, columns, label_format, most, need_label=False), spec
            )
        return list(self.examples[spec, most])

    def label_with_teacher(self, examples: list[Example], spec: str) -> list[Example]:
        texts = [text for text in dict.fromkeys(e.text for e in examples) if text not in self.teacher_logits]
        print_once(f"the teacher reads {len(texts):,} texts of {spec}")
        outcomes = map_texts(texts, OutcomePipeline(self.teacher, self.kind, self.long_texts))
        self.teacher_logits |= zip(texts, (outcome.raw for outcome in outcomes), strict=True)
        self.labelled_locations |= {example.where for example in examples if example.label is not None}
        return [
            dataclasses.replace(example, label=self.predict_label(example.text))
            if example.label is None
            else example
            for example in examples
        ]

    def predict_label(self, text) -> ExampleLabel:
        label = self.kind.decoder.predict(self.teacher_logits[text], UNCALIBRATED)
        return tuple(sorted(label)) if isinstance(label, set) else label

    def add_teacher_targets(
        self, encoded_windows: Sequence[EncodedWindow], examples: Sequence[Example]
    ) -> list[EncodedWindow]:
        """Add the teacher's logits for the whole text to each of its windows."""
        return [
            dataclasses.replace(
                window, targets=window.targets | self.teacher_targets(examples[window.example])
            )
            for window in encoded_windows
        ]

    def teacher_targets(self, example: Example) -> dict[str, Any]:
        return {
            TEACHER_LOGITS: self.teacher_logits[example.text],
            HAS_LABEL: float(example.where in self.labelled_locations),
        }
