"""The model cards of embedders and cross-encoders."""

from functools import partial

from bert_jax.finetuning.embed_config import EmbedConfig
from bert_jax.finetuning.embedding_task import EmbeddingTask
from bert_jax.finetuning.ranking_task import RankingTask
from bert_jax.finetuning.rerank_config import RerankConfig
from bert_jax.hub.layout import Layout
from bert_jax.predictions.calibration import Calibration
from bert_jax.text.truncation import TruncationCounter
from bert_jax.training.task import ModelCard

LIBRARY = "sentence-transformers"


def usage(layout: Layout, ours: str, theirs: str) -> str:
    """Return the code of a card: ours and, if it opens the model, that of sentence-transformers."""
    code = f"import bert_jax\nbert_jax.{ours}"
    return f"{code}\n\nfrom sentence_transformers import {theirs}" if opens_elsewhere(layout) else code


def opens_elsewhere(layout: Layout) -> bool:
    """Return whether sentence-transformers opens the model, which it does by transformers."""
    return layout.family.encoder_in_transformers


def library(layout: Layout) -> str:
    return LIBRARY if opens_elsewhere(layout) else "bert_jax"


def embedder_card(
    task: EmbeddingTask, config: EmbedConfig, data: str, truncated: TruncationCounter
) -> ModelCard:
    """Return the card of an embedder; `data` describes what it is trained on."""
    embedder, settings = task.embedder, task.settings
    prompts = {name: text for name, text in embedder.prompts.items() if text}
    named = f', prompt_name="{next(iter(prompts))}"' if prompts else ""
    sizes = " or ".join(map(str, config.loss.sizes))
    scale = f"{settings.scale:g}{' at the start, then learnt' * task.learns_scale}"
    return ModelCard(
        library=library(task.layout),
        pipeline="sentence-similarity",
        tags=("sentence-similarity", "feature-extraction"),
        about=[
            f"An embedder of {task.layout.vector_size} dimensions: texts that belong together get similar "
            "vectors.",
            f"It reads the first {embedder.max_length} tokens of a text; the rest is truncated.",
            *[f"Its first {sizes} dimensions can be used alone."] * bool(sizes),
            *[f'The prompt of a {name} is "{text}".' for name, text in prompts.items()],
        ],
        usage=usage(
            task.layout,
            f'Embedder.load("DIR").encode(["a text"]{named})',
            f'SentenceTransformer\nSentenceTransformer("DIR").encode(["a text"]{named})',
        ),
        data=[f"{data}.", *truncation_lines(truncated, "texts")],
        recipe={
            "loss": task.loss.name + " in both directions" * settings.symmetric,
            "scale of cosines": scale if "scale" in task.loss.reads else "",
            "margin": f"{settings.margin:g}" if settings.margin and "margin" in task.loss.reads else "",
            "teacher": f"`{config.loss.teacher}`" if config.loss.teacher else "",
            "groups per step": f"{config.batch_size:,}",
        },
    )


def cross_encoder_card(
    task: RankingTask, config: RerankConfig, data: str, truncated: TruncationCounter
) -> ModelCard:
    """Return the card of a cross-encoder; `data` describes what it is trained on."""
    most = task.layout.config.max_position_embeddings
    return ModelCard(
        library=library(task.layout),
        pipeline="text-ranking",
        tags=("cross-encoder", "reranker"),
        about=[
            "A cross-encoder: it reads a query and a document together, and scores how relevant the document is.",
            f"It reads at most {most:,} tokens of both together, and was trained on at most "
            f"{config.data.max_length:,}; longer documents are truncated.",
        ],
        usage=usage(
            task.layout,
            'Reranker.load("DIR").rank("a query", ["a document", "another"])',
            'CrossEncoder\nCrossEncoder("DIR").rank("a query", ["a document", "another"])',
        ),
        data=[f"{data}.", *truncation_lines(truncated, "pairs")],
        recipe={
            "loss": task.loss.name,
            "factor of logits": f"{task.settings.scale:g}" if task.settings.scale != 1 else "",
            "queries per step": f"{config.batch_size:,}",
        },
        describe_calibration=partial(describe_relevance_scores, here_alone=not opens_elsewhere(task.layout)),
    )


def describe_relevance_scores(calibration: Calibration, here_alone: bool = False) -> str:
    """Say what the scores of a cross-encoder mean, if not `here_alone` also those of sentence-transformers."""
    sigmoid = "Scores are the sigmoid of the logit" + ", here and in `sentence_transformers`" * (
        not here_alone
    )
    if not calibration.is_fitted:
        return f"{sigmoid}. They were not calibrated: trust their order, not their values."
    pairs = f"{calibration.examples:,} pairs that it was not trained on"
    if calibration.keeps_probabilities:
        return f"{sigmoid}: as probabilities, checked on {pairs}, they need no other calibration."
    slope, offset = 1 / calibration.temperatures[0], calibration.offset
    sign = "-" if offset < 0 else "+"
    theirs = " `sentence_transformers` returns sigmoid(logit): other values in the same order."
    return (
        f"Scores of `rank` are probabilities, calibrated on {pairs}: sigmoid({slope:.4g} * logit {sign} "
        f"{abs(offset):.4g}).{theirs * (not here_alone)}"
    )


def describe_groups(config: EmbedConfig, task: EmbeddingTask, train: int, validation: int) -> str:
    """Describe the data of an embedder: the numbers of groups, and the files that they are from."""
    files = ", ".join(f"`{spec}`" for spec in config.data.train)
    return (
        f"{train:,} groups of {task.texts_per_group} texts, from {files}; {validation:,} groups for validation, from "
        f"{describe_validation_source(config, 'documents')}"
    )


def describe_queries(
    config: RerankConfig, task: RankingTask, train: int, validation: int, calibration: int
) -> str:
    """Describe the data of a cross-encoder: the numbers of queries, and the file that they are from."""
    return (
        f"{train:,} queries with up to {task.max_documents} documents each, from `{config.data.train}`; "
        f"{validation:,} for validation, from {describe_validation_source(config, 'queries')}, and {calibration:,} for "
        "calibration"
    )


def describe_validation_source(config: EmbedConfig | RerankConfig, what: str) -> str:
    """Say where the validation set comes from: a file, or a share of the training data."""
    data = config.data
    return f"`{data.validation}`" if data.validation else f"{data.validation_ratio:.0%} of the {what}"


def truncation_lines(truncated: TruncationCounter, what: str) -> list[str]:
    return [f"{line}." for line in [truncated.notice(what=what)] if line]
