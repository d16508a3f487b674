"""Replaced-token detection, the objective of ELECTRA and DeBERTa-v3: a small masked LM, the generator, replaces masked
words, and the discriminator predicts for every token whether it was replaced. The discriminator is the run's model.

The parameters are {"generator": ..., "discriminator": ...}. Shared embeddings are stored with the generator. If they
are tied, the discriminator's parameters lack them; if they are disentangled, the discriminator's parameters hold what
it adds to them ("words_delta").
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from bert_jax.core.config import Range
from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.stream import Stream
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.losses.loss import Loss, binary_cross_entropy, weighted_loss
from bert_jax.models.cost import layer_flops, pre_training_flops
from bert_jax.models.dropout import draw_by_row
from bert_jax.models.encoder_config import COMPUTATION_FIELDS, TRAINING_FIELDS, EncoderConfig
from bert_jax.models.mesh import FSDP, TENSOR
from bert_jax.tasks import pretrain
from bert_jax.tasks.pretrain import MaskedLMTask, choose_family, fit_vocabulary
from bert_jax.training.objective import apply_model
from bert_jax.training.parameter_rules import EMBEDDINGS, ParameterRule
from bert_jax.training.task import Outline
from bert_jax.training.warm_start import check_same_tokenizer, check_sizes

GENERATOR = "generator"  # the directory of its model, within that of the discriminator
HEADS = ("replaced", "replaced_in_context")  # a family has at most one of them
NEVER_SHARED = "projection"  # this part of the embeddings is as wide as the model
DISENTANGLED = ("words", "positions")
DELTA = "_delta"

Portion = Annotated[float, Range(0, 1, exclusive_minimum=True)]
Weight = Annotated[float, Range(0, 1e6, exclusive_minimum=True)]


@dataclass(frozen=True)
class GeneratorConfig:
    """The generator's size, as shares of the discriminator's."""

    # width of the generator, its feed-forward and heads, as a share of the discriminator's
    width: Portion = 0.25
    depth: Portion = 1.0  # layers of the generator, as a share of the discriminator's

    def derive_encoder(self, discriminator: EncoderConfig) -> EncoderConfig:
        """Return the generator's config; its embeddings and each of its heads are as wide as the discriminator's."""
        d = discriminator
        width, embedding = round(self.width * d.hidden_size), d.embedding_width
        return d.replace(
            hidden_size=width,
            embedding_size=0 if embedding == width else embedding,
            num_attention_heads=max(1, width // d.head_size),
            intermediate_size=round(self.width * d.intermediate_size),
            num_hidden_layers=max(1, round(self.depth * d.num_hidden_layers)),
        )


@dataclass(frozen=True)
class Config(pretrain.Config):
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    # how both models share embeddings; tied: they train the same ones; disentangled: the discriminator trains only what
    # it adds to those of the generator
    sharing: Literal["tied", "disentangled"] = "tied"
    discriminator_weight: Weight = 50.0  # weight of the discriminator's loss; the generator's has weight 1


def open(config: Config, directories: ModelDirectories) -> tuple["ReplacedTokenTask", Stream, Config]:
    config = config.resolve_steps()
    data = Stream(config.data, config.seed, config.steps)
    if config.init:
        check_same_tokenizer(directories[config.init], data.tokenizer)
    model = fit_vocabulary(config.model, data.tokenizer.size, max(config.data.lengths))
    task = ReplacedTokenTask.from_config(dataclasses.replace(config, model=model), directories)
    if config.init:
        generator = directories.of_model(config.init, GENERATOR)
        check_same_tokenizer(generator, data.tokenizer)
        sources = {"": directories[config.init].layout, GENERATOR: generator.layout}
        layouts = {
            name: dataclasses.replace(layout, family=sources[name].family, hf_config=sources[name].hf_config)
            for name, layout in task.layouts.items()
        }
        task = dataclasses.replace(task, layout=layouts[""], generator=layouts[GENERATOR])
    return task, data, config


complete_values = pretrain.complete_values


def outline(config: Config, directories: ModelDirectories) -> Outline:
    return pretrain.outline_task(config, directories, ReplacedTokenTask.from_config)


def reopen(layouts: dict[str, Layout]) -> "ReplacedTokenTask":
    return ReplacedTokenTask(layouts[""], generator=layouts[GENERATOR])


def read_generator_layout(
    directories: ModelDirectories, directory: str, head: str, model: EncoderConfig
) -> Layout:
    """Return the layout of the generator of the discriminator in `directory`; refuse both if a run with `model` cannot
    start from them."""
    discriminator = directories[directory].layout
    if head not in discriminator.heads:
        raise BertJaxError(
            f'the model in {directory} is not a discriminator (it has no head "{head}"); leave --config.init out'
        )
    inner = Path(directory) / GENERATOR
    if not inner.is_dir():
        raise BertJaxError(
            f"the discriminator in {directory} can only be trained with its generator; put that model into {inner}, "
            "or leave --config.init out"
        )
    check_sizes(directory, discriminator.config, model)
    generator = directories.of_model(directory, GENERATOR).layout
    if "mlm" not in generator.heads:
        raise BertJaxError(
            f'the model in {inner} is not a generator (it has no head "mlm"); leave --config.init out'
        )
    for name in ("vocab_size", "embedding_width", "max_position_embeddings", "type_vocab_size"):
        generator_value, model_value = getattr(generator.config, name), getattr(model, name)
        if generator_value != model_value:
            raise BertJaxError(
                f"the generator in {inner} cannot share embeddings: its {name} is {generator_value}, the "
                f"discriminator's {model_value}"
                "; put the generator of this discriminator there, or leave --config.init out"
            )
    return generator


@dataclass(frozen=True)
class ReplacedTokenTask(MaskedLMTask):
    """Pre-training of a generator and a discriminator; `layout` is the discriminator's."""

    best_metric = "replaced_loss"
    rules = (
        (f"{EMBEDDINGS}words{DELTA}$", ParameterRule(P(TENSOR, FSDP), depth="embeddings")),
        (f"{EMBEDDINGS}positions{DELTA}$", ParameterRule(P(None, FSDP), depth="embeddings")),
    )

    generator: Layout = field(kw_only=True)
    weight: float = Config.discriminator_weight
    disentangled: bool = False

    @classmethod
    def from_config(cls, config: Config, directories: ModelDirectories) -> "ReplacedTokenTask":
        if not config.data.packed:
            raise BertJaxError(
                f"data.sentence_objective={config.data.sentence_objective} makes pairs, which the task electra cannot "
                "use; set --config.data.sentence_objective=none"
            )
        family = choose_family(config, directories[config.init].layout if config.init else None)
        head = next((head for head in HEADS if head in family.heads), None)
        if head is None:
            raise BertJaxError(
                f'models of the family "{family.model_type}" have no head for replaced tokens; set '
                "--config.family=electra or --config.family=deberta-v2"
            )
        model = family.apply_constants(config.model)
        smaller = config.generator.derive_encoder(model)
        if config.init:
            source = read_generator_layout(directories, config.init, head, model)
            of_run = {name: getattr(model, name) for name in (*COMPUTATION_FIELDS, *TRAINING_FIELDS)}
            smaller = source.config.replace(**of_run)
        return cls(
            Layout(model, family, (head,), pooler=False),
            config.data,
            embedding_init=config.embedding_init,
            weight=config.discriminator_weight,
            disentangled=config.sharing == "disentangled",
            generator=Layout(smaller, family, ("mlm",), pooler=False),
        )

    @property
    def layouts(self) -> dict[str, Layout]:
        return {"": self.layout, GENERATOR: self.generator}

    def init(self, key) -> dict:
        keys = jax.random.split(key)
        generator, discriminator = self.generator.init(keys[0]), self.layout.init(keys[1])
        tables = get_embeddings(generator)
        shared = [name for name in tables if name in DISENTANGLED or not self.disentangled]
        discriminator = replace_embeddings(
            discriminator, get_embeddings(discriminator) | {n: tables[n] for n in shared if n != NEVER_SHARED}
        )
        return self.join_params({"": discriminator, GENERATOR: generator})

    def split_params(self, params: dict) -> dict[str, dict]:
        generator, discriminator = params[GENERATOR], params["discriminator"]
        tables, own = get_embeddings(generator), get_embeddings(discriminator)
        deltas = {name: own[name + DELTA] for name in tables if name + DELTA in own}
        if deltas:
            whole = {name: table for name, table in own.items() if not name.endswith(DELTA)}
            whole |= {name: tables[name] + delta for name, delta in deltas.items()}
        else:
            whole = own | {name: table for name, table in tables.items() if name != NEVER_SHARED}
        return {"": replace_embeddings(discriminator, whole), GENERATOR: generator}

    def join_params(self, models: dict[str, dict]) -> dict:
        """Return the parameters of the task; tied embeddings get the values of the discriminator's."""
        generator, discriminator = models[GENERATOR], models[""]
        tables, whole = get_embeddings(generator), get_embeddings(discriminator)
        if self.disentangled:
            own = {
                name + DELTA * (name in DISENTANGLED): table - tables[name] if name in DISENTANGLED else table
                for name, table in whole.items()
            }
        else:
            own = {name: table for name, table in whole.items() if name == NEVER_SHARED}
            shared = {name: table for name, table in whole.items() if name != NEVER_SHARED}
            generator = replace_embeddings(generator, tables | shared)
        return {GENERATOR: generator, "discriminator": replace_embeddings(discriminator, own)}

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        """Return the logits of the generator ("mlm") and of the discriminator ("told"), the drawn tokens, and where
        these differ from the original ones ("replaced")."""
        keys = [None, None] if key is None else [jax.random.fold_in(key, number) for number in range(2)]
        # Rows of the validation set get the same draws in every evaluation.
        to_draw = jax.random.key(0, impl="threefry2x32") if key is None else jax.random.fold_in(key, 2)
        generator = params[GENERATOR]
        logits = apply_model(self.generator, generator, batch, keys[0])["mlm"]
        drawn = sample_tokens(jax.lax.stop_gradient(logits), to_draw, batch.get("rows"))
        tokens, replaced = replace_tokens(drawn, batch)
        if self.disentangled:
            constant = jax.tree.map(jax.lax.stop_gradient, get_embeddings(generator))
            params = params | {GENERATOR: replace_embeddings(generator, constant)}
        seen = batch | {"input_ids": tokens}
        detection_logits = apply_model(self.layout, self.split_params(params)[""], seen, keys[1])[
            self.layout.heads[0]
        ]
        return {"mlm": logits, "drawn": drawn, "replaced": replaced, "told": detection_logits}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        total, weight = detection_loss(outputs, batch)
        return super().losses(outputs, batch) | {"weighted_replaced_loss": Loss(self.weight * total, weight)}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        """Score how well replaced tokens are detected; `replaced_share` is their share of all tokens."""
        detected, replaced, real = outputs["told"] > 0, outputs["replaced"], batch["attention_mask"] > 0
        return super().scores(outputs, batch) | {
            "replaced_loss": detection_loss(outputs, batch),
            "replaced_accuracy": weighted_loss(detected == replaced, real),
            "replaced_share": weighted_loss(replaced, real),
            "replaced_precision": weighted_loss(replaced, real & detected),
            "replaced_recall": weighted_loss(detected, real & replaced),
        }

    def flops(self, rows: int, length: int) -> float:
        config = self.layout.config
        generator = pre_training_flops(self.generator.config, rows, length, self.data.max_targets(length))
        return generator + 3 * config.num_hidden_layers * layer_flops(config, rows * length, length)


def get_embeddings(model: dict) -> dict:
    return model["encoder"].get("embeddings", {})


def replace_embeddings(model: dict, tables: dict) -> dict:
    rest = {name: part for name, part in model["encoder"].items() if name != "embeddings"}
    # Without tables there is no entry: an empty dict would get lost when parameters are flattened.
    return model | {"encoder": rest | ({"embeddings": tables} if tables else {})}


def sample_tokens(logits, key, rows=None):
    """Sample tokens [B, K] from the softmax of logits [B, K, V]; a row's draws depend on its number in `rows` [B]."""
    # Take the highest sum of logit and Gumbel noise. Logits that are rounded differently, as on another mesh, nearly
    # always give the same token; a search in the cumulative sum of 30,000 probabilities would sometimes give a
    # neighbour.
    if rows is None:
        rows = jnp.arange(len(logits))
    noise = draw_by_row(lambda key: jax.random.gumbel(key, logits.shape[1:]), key, rows)
    return (logits + noise).argmax(-1).astype(jnp.int32)


def replace_tokens(drawn, batch: dict):
    """Put the drawn tokens [B, K] at the target positions of the batch's tokens; return the tokens [B, L], and where
    they differ from the original ones."""
    input_ids, targets, target_weights = batch["input_ids"], batch["targets"], batch["target_weights"]
    here = batch["target_positions"][..., None] == jnp.arange(input_ids.shape[1])
    here &= target_weights[..., None] > 0
    placed = jnp.where(here, drawn[..., None], 0).sum(1)
    replaced = (here & (drawn != targets)[..., None]).any(1)
    return jnp.where(here.any(1), placed, input_ids), replaced


def detection_loss(outputs: dict, batch: dict) -> Loss:
    """The discriminator's loss, over all tokens but padding."""
    return binary_cross_entropy(
        outputs["told"][..., None], outputs["replaced"][..., None], batch["attention_mask"]
    )
