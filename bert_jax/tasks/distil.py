"""Distillation of a pre-trained model: a smaller model learns from the teacher's outputs on text without labels.

The teacher's parameters are constants of the step: they lie on the mesh as trained parameters do, and no checkpoint
holds them. Both models read the same tokens, so they share a tokenizer.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from flax.traverse_util import unflatten_dict

from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.corpus.stream import Stream
from bert_jax.finetuning.distillation import DistillationLossConfig, StudentEncoderConfig, keep_layers
from bert_jax.hub.layout import HEAD_KEYS, Layout
from bert_jax.hub.model_directory import ModelDirectories, ModelDirectory
from bert_jax.losses.distillation import (
    cosine_distance,
    mean_squares,
    relation_divergence,
    soft_cross_entropy,
)
from bert_jax.losses.loss import Loss
from bert_jax.models.cost import layer_flops
from bert_jax.models.einsum import mixed_einsum
from bert_jax.models.encoder import TransformerEncoder
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.kernels.request import make_attention_mask
from bert_jax.models.layer_states import layerwise
from bert_jax.models.layers import QKV, SCORES, STATES
from bert_jax.tasks import pretrain
from bert_jax.tasks.pretrain import CorporaConfig, PretrainTask
from bert_jax.training.objective import apply_model
from bert_jax.training.task import Outline, Task
from bert_jax.training.warm_start import check_same_tokenizer, check_sizes

Objective = Literal["distilbert", "minilm", "tinybert"]
# key of the teacher's parameters among the constants, and of its outputs among the outputs of a step
TEACHER = "teacher"


@dataclass(frozen=True)
class Config(CorporaConfig):
    objective: Objective = "distilbert"  # what the student learns
    teacher: str = ""  # model directory of the teacher
    # model directory that the student starts from; "": the teacher with fewer layers if all other sizes are the same,
    # else initial values
    init: str = ""
    model: StudentEncoderConfig = field(default_factory=StudentEncoderConfig)
    loss: DistillationLossConfig = field(default_factory=DistillationLossConfig)
    data: DataConfig = field(default_factory=lambda: DataConfig(sentence_objective="none"))

    def __post_init__(self):
        if not self.teacher:
            raise BertJaxError(
                "config key teacher is missing; name a pre-trained model's directory, --config.teacher=DIR"
            )
        super().__post_init__()
        usual, reads = DistillationLossConfig(), OBJECTIVES[self.objective].reads
        for name, value in vars(self.loss).items():
            if value != getattr(usual, name) and name not in reads:
                raise BertJaxError(
                    f"objective={self.objective} does not use loss.{name}; leave it out, or set another "
                    "--config.objective"
                )


@dataclass(frozen=True)
class DistillTask(PretrainTask):
    """A student that learns from its teacher's outputs; each subclass is an objective."""

    heads: ClassVar[tuple[str, ...]] = ()  # that both models need
    reads: ClassVar[tuple[str, ...]] = ()  # the settings of the losses that it uses

    teacher: Layout = field(kw_only=True)
    teacher_params: dict = field(kw_only=True, compare=False, repr=False)
    settings: DistillationLossConfig = field(default=DistillationLossConfig(), kw_only=True)
    # the encoder of the model that the student starts from
    start_encoder: EncoderConfig | None = field(default=None, kw_only=True)

    def initial_params(self, params: dict, data: Stream, steps: int) -> dict:
        return keep_layers(params, self.start_encoder, self.layout.config) if self.start_encoder else params

    def constants(self) -> dict:
        return {TEACHER: self.teacher_params}

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        student = super().outputs(params, batch, constants, key)
        assert constants is not None
        return student | {TEACHER: apply_model(self.teacher, constants[TEACHER], batch)}

    def check_teacher(self) -> None:
        """Refuse a student that cannot learn from this teacher by this objective."""

    def flops(self, rows: int, length: int) -> float:
        return super().flops(rows, length) + self.teacher_flops(rows, length)

    def teacher_flops(self, rows: int, length: int) -> float:
        return self.teacher.config.num_hidden_layers * layer_flops(self.teacher.config, rows * length, length)


class DistilBertTask(DistillTask):
    """Learns the masked words, the teacher's probabilities for them, and the directions of its hidden states.

    The probabilities are compared only at masked words; DistilBERT's own program compares them at every token, which
    takes several times the memory.
    """

    heads: ClassVar[tuple[str, ...]] = ("mlm",)
    reads: ClassVar[tuple[str, ...]] = ("temperature", "soft", "mlm", "cosine")

    def check_teacher(self) -> None:
        student_size, teacher_size = self.layout.config.hidden_size, self.teacher.config.hidden_size
        if self.settings.cosine and student_size != teacher_size:
            raise BertJaxError(
                f"hidden states of {student_size} dimensions have no cosine with the teacher's {teacher_size} "
                f"dimensions; set --config.loss.cosine=0, or --config.model.hidden_size={teacher_size}"
            )

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        s, teacher = self.settings, outputs[TEACHER]
        soft = soft_cross_entropy(outputs["mlm"], teacher["mlm"], batch["target_weights"], s.temperature)
        hard = super().losses(outputs, batch)["mlm_loss"]
        parts = {"soft_part": (s.soft, soft), "mlm_part": (s.mlm, hard)}
        if s.cosine:
            distance = cosine_distance(outputs["hidden"], teacher["hidden"], batch["attention_mask"])
            parts["cosine_part"] = (s.cosine, distance)
        return {name: Loss(factor * loss.total, loss.weight) for name, (factor, loss) in parts.items()}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return super().losses(outputs, batch) | super().scores(outputs, batch)


class LayerDistillTask(DistillTask):
    """Learns the outputs of the teacher's layers; no words are predicted."""

    def flops(self, rows: int, length: int) -> float:
        return Task.flops(self, rows, length) + self.teacher_flops(rows, length)

    scores, predictions, metrics_from_means = Task.scores, Task.predictions, Task.metrics_from_means


class MiniLMTask(LayerDistillTask):
    """Learns how tokens relate to each other by the queries, keys and values of one layer (MiniLMv2).

    Nothing above the queries, keys and values of the student's last layer is trained.
    """

    best_metric = "relation_loss"
    reads: ClassVar[tuple[str, ...]] = ("relation_heads", "teacher_layer")

    @property
    def teacher_layer(self) -> int:
        layers = self.teacher.config.num_hidden_layers
        return self.settings.teacher_layer or (layers if layers <= 12 else layers * 7 // 8)

    def check_teacher(self) -> None:
        heads, widths = self.settings.relation_heads, (self.layout.config, self.teacher.config)
        common = math.gcd(*(config.hidden_size for config in widths))
        if common % heads:
            fitting = max(n for n in range(1, heads + 1) if common % n == 0)
            raise BertJaxError(
                f"loss.relation_heads={heads} does not divide the hidden sizes of student and teacher, "
                f"{widths[0].hidden_size} and {widths[1].hidden_size}; {fitting} does"
            )
        if self.teacher_layer > (layers := self.teacher.config.num_hidden_layers):
            raise BertJaxError(
                f"loss.teacher_layer is {self.teacher_layer}, but the teacher has {layers} layers; set "
                f"--config.loss.teacher_layer={layers} or lower"
            )

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        assert constants is not None
        last = self.layout.config.num_hidden_layers
        ours = compute_layer_values(self.layout, params, batch, key, qkv=[last])
        theirs = compute_layer_values(self.teacher, constants[TEACHER], batch, qkv=[self.teacher_layer])
        return {"student": ours[QKV][0], TEACHER: theirs[QKV][0]}

    def relations(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        ours, theirs, heads = outputs["student"], outputs[TEACHER], self.settings.relation_heads
        return {
            f"{projection}_relations": relation_divergence(ours[:, :, n], theirs[:, :, n], batch, heads)
            for n, projection in enumerate(("query", "key", "value"))
        }

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        queries, keys, values = self.relations(outputs, batch).values()
        return {"relation_loss": Loss(queries.total + keys.total + values.total, queries.weight)}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return self.relations(outputs, batch)


class TinyBertTask(LayerDistillTask):
    """Learns the embeddings, and the hidden states and attention scores of evenly spaced layers of the teacher.

    Attention scores are left out if their weight is 0. Two dense layers project the student's states to the teacher's
    width; the finished model does without them.
    """

    best_metric = "states_loss"
    reads: ClassVar[tuple[str, ...]] = ("scores",)
    projections: ClassVar[tuple[str, ...]] = ("to_embeddings", "to_states")

    def check_teacher(self) -> None:
        student_heads = self.layout.config.num_attention_heads
        teacher_heads = self.teacher.config.num_attention_heads
        if self.settings.scores and student_heads != teacher_heads:
            raise BertJaxError(
                f"objective=tinybert compares heads one by one, but the student has {student_heads}, the teacher "
                f"{teacher_heads}; set --config.model.num_attention_heads={teacher_heads}, or --config.loss.scores=0"
            )

    def init(self, key) -> dict:
        shape = self.layout.config.hidden_size, self.teacher.config.hidden_size
        initial = jax.nn.initializers.truncated_normal(self.layout.config.initializer_range)
        keys = jax.random.split(jax.random.fold_in(key, 1), len(self.projections))
        beside = {
            name: {"dense": {"kernel": initial(own, shape)}}
            for name, own in zip(self.projections, keys, strict=True)
        }
        return super().init(key) | beside

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        assert constants is not None
        count = self.layout.config.num_hidden_layers
        teacher_layer_count = self.teacher.config.num_hidden_layers
        layers = list(range(count + 1))
        teacher_layers = [layer * teacher_layer_count // count for layer in layers]
        scored = slice(1, None if self.settings.scores else 1)
        teacher_values = compute_layer_values(
            self.teacher, constants[TEACHER], batch, states=teacher_layers, scores=teacher_layers[scored]
        )
        student_values = compute_layer_values(
            self.layout, params, batch, key, states=layers, scores=layers[scored]
        )
        kernels = [params[name]["dense"]["kernel"] for name in self.projections]
        dtype = self.layout.config.computed_dtype
        student_values[STATES] = [
            mixed_einsum("bld,de->ble", states, kernels[layer > 0], dtype, dtype)
            for layer, states in enumerate(student_values[STATES])
        ]
        return {"student": student_values, TEACHER: teacher_values}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        ours, theirs = outputs["student"], outputs[TEACHER]
        attention_mask, weight = batch["attention_mask"], self.settings.scores
        losses = {
            "embeddings_loss": mean_squares(ours[STATES][:1], theirs[STATES][:1], attention_mask),
            "states_loss": mean_squares(ours[STATES][1:], theirs[STATES][1:], attention_mask),
        }
        if weight:
            pairs = make_attention_mask(attention_mask, batch.get("segment_ids"), None)[:, 0]
            pairs = pairs & (attention_mask[:, :, None] > 0)
            pair_scores = [
                [scores.transpose(0, 2, 3, 1) for scores in layers[SCORES]] for layers in (ours, theirs)
            ]
            scores = mean_squares(pair_scores[0], pair_scores[1], pairs)
            losses["scores_loss"] = Loss(weight * scores.total, scores.weight)
        return losses


def compute_layer_values(layout: Layout, params: dict, batch: dict, key=None, **wanted) -> dict[str, list]:
    """Return the intermediate values of a model's encoder; see `layerwise`."""
    rngs = None if key is None else {"dropout": key}
    encoder, variables = TransformerEncoder(layout.config), {"params": params["encoder"]}
    values: Any = encoder.apply(variables, batch, key is not None, rngs=rngs, method=layerwise, **wanted)
    return values


OBJECTIVES: dict[Objective, type[DistillTask]] = {
    "distilbert": DistilBertTask,
    "minilm": MiniLMTask,
    "tinybert": TinyBertTask,
}


def open(config: Config, directories: ModelDirectories) -> tuple[DistillTask, Stream, Config]:
    config = config.resolve_steps()
    data = Stream(config.data, config.seed, config.steps)
    for directory in filter(None, (config.teacher, config.init)):
        check_same_tokenizer(directories[directory], data.tokenizer)
    task, config = make_distill_task(config, directories)
    teacher = directories[config.teacher]
    whole = teacher.read_params(teacher.layout.computed_with(**config.model.compute_settings))
    taken = {name: whole[name] for name in task.teacher.module_names}
    return dataclasses.replace(task, teacher_params=taken), data, config


def outline(config: Config, directories: ModelDirectories) -> Outline:
    task, config = make_distill_task(config.resolve_steps(), directories)
    return pretrain.outline_corpora(task, config)


def make_distill_task(config: Config, directories: ModelDirectories) -> tuple[DistillTask, Config]:
    """Return the task, with zeros for the teacher, which take no memory, and the config with its actual `init`."""
    objective = OBJECTIVES[config.objective]
    teacher, begins = (
        choose_objective_layout(directories[name], objective.heads, config)
        for name in (config.teacher, config.init or config.teacher)
    )
    layers = begins.config.num_hidden_layers if config.init else max(teacher.config.num_hidden_layers // 2, 1)
    encoder = config.model.derive_encoder(begins.config, layers)
    all_layers = encoder.replace(num_hidden_layers=begins.config.num_hidden_layers)
    if config.init:
        check_sizes(config.init, begins.config, all_layers)
    if config.init and not config.from_scratch and encoder.groups > begins.config.groups:
        raise BertJaxError(
            f"model.num_hidden_layers is {encoder.num_hidden_layers}, but {config.init} has "
            f"{begins.config.num_hidden_layers} layers; set --config.model.num_hidden_layers="
            f"{begins.config.num_hidden_layers} or fewer, or leave --config.init out"
        )
    is_part = (
        all_layers.architecture == begins.config.architecture
        and encoder.num_hidden_layers <= begins.config.num_hidden_layers
    )
    zeros = {name: np.broadcast_to(np.float32(0), shape) for name, shape in teacher.shapes().items()}
    task = objective(
        dataclasses.replace(begins, config=encoder),
        config.data,
        teacher=teacher,
        teacher_params=unflatten_dict(zeros, sep="/"),
        settings=config.loss,
        start_encoder=begins.config if is_part else None,
    )
    task.check_teacher()
    return task, dataclasses.replace(config, init=config.init or config.teacher * is_part)


def choose_objective_layout(directory: ModelDirectory, heads: tuple[str, ...], config: Config) -> Layout:
    """Return the layout of a model directory's encoder with only the heads that the objective needs."""
    source, name = directory.layout.computed_with(**config.model.compute_settings), directory.name
    if missing := [head for head in heads if head not in source.heads]:
        raise BertJaxError(
            f'{name} has no head "{missing[0]}", from which objective={config.objective} learns; name a '
            "pre-trained model that has it, or set --config.objective=minilm, which needs none"
        )
    if source.config.max_position_embeddings < max(config.data.lengths):
        raise BertJaxError(
            f"data.lengths goes up to {max(config.data.lengths)}, but {name} reads at most "
            f"{source.config.max_position_embeddings} tokens; set shorter --config.data.lengths"
        )
    published = {key: value for key, value in source.hf_config.items() if key not in HEAD_KEYS}
    layout = dataclasses.replace(source, heads=heads, labels=(), pooler=False, hf_config=published)
    return layout.embedding_with(None)
