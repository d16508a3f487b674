"""What the cards of the models of tasks say."""

from bert_jax.predictions.calibration import Calibration
from bert_jax.tasks.embed_config import EmbedConfig
from bert_jax.tasks.embedding import Embedding
from bert_jax.tasks.ranking import Ranking
from bert_jax.tasks.rerank_config import RerankConfig
from bert_jax.text.truncation import Truncated
from bert_jax.train.task import Card

LIBRARY = "sentence-transformers"


def of_embedder(task: Embedding, config: EmbedConfig, counts: tuple[int, int], truncated: Truncated) -> Card:
    """`counts` are of groups: to train on, held out."""
    embedder, settings, (learnt, heldout) = task.embedder, task.settings, counts
    prompts = {name: text for name, text in embedder.prompts.items() if text}
    prompt = f', prompt="{next(iter(prompts))}"' if prompts else ""
    named = prompt.replace("prompt=", "prompt_name=")
    sizes = " or ".join(map(str, config.loss.sizes))
    files = ", ".join(f"`{spec}`" for spec in config.data.train)
    scale = f"{settings.scale:g}{', learnt from there' * task.learns_scale}"
    return Card(
        library=LIBRARY,
        pipeline="sentence-similarity",
        tags=("sentence-similarity", "feature-extraction"),
        about=[
            f"An embedder of {task.layout.vector_size} dimensions: texts that belong together get similar "
            "vectors.",
            f"It reads the first {embedder.max_length} tokens of a text; the rest is truncated.",
            *[f"Its first {sizes} dimensions can be used alone."] * bool(sizes),
            *[f'The prompt of a {name} is "{text}".' for name, text in prompts.items()],
        ],
        usage=f"""import bert_jax
bert_jax.load("DIR").embed(["a text"]{prompt})

from sentence_transformers import SentenceTransformer
SentenceTransformer("DIR").encode(["a text"]{named})""",
        data=[
            f"{learnt:,} groups of {task.texts} texts, of {files}; {heldout:,} held out, "
            f"{source_of_heldout(config, 'documents')}.",
            *notice(truncated, "texts"),
        ],
        recipe={
            "loss": task.loss.name + " in both directions" * settings.symmetric,
            "scale of cosines": scale if "scale" in task.loss.reads else "",
            "margin": f"{settings.margin:g}" if settings.margin and "margin" in task.loss.reads else "",
            "teacher": f"`{config.loss.teacher}`" if config.loss.teacher else "",
            "groups of a step": f"{config.batch:,}",
        },
    )


def of_cross_encoder(
    task: Ranking, config: RerankConfig, counts: tuple[int, ...], truncated: Truncated
) -> Card:
    """`counts` are of queries: to train on, held out, for calibration."""
    learnt, heldout, calibration = counts
    most = task.layout.config.max_positions
    return Card(
        library=LIBRARY,
        pipeline="text-ranking",
        tags=("cross-encoder", "reranker"),
        about=[
            "A cross-encoder: it reads a query and a document together, and scores how relevant the document is.",
            f"It reads {most:,} tokens of both at most, and learnt from {config.data.max_length:,}; longer documents "
            "are truncated.",
        ],
        usage="""import bert_jax
bert_jax.load("DIR").rank("a query", ["a document", "another"])

from sentence_transformers import CrossEncoder
CrossEncoder("DIR").rank("a query", ["a document", "another"])""",
        data=[
            f"{learnt:,} queries with up to {task.documents} documents each, of `{config.data.train}`; {heldout:,} "
            f"held out, {source_of_heldout(config, 'queries')}, and {calibration:,} for calibration.",
            *notice(truncated, "pairs"),
        ],
        recipe={
            "loss": task.loss.name,
            "factor of logits": f"{task.settings.scale:g}" if task.settings.scale != 1 else "",
            "queries of a step": f"{config.batch:,}",
        },
        calibrated=relevance,
    )


def relevance(calibration: Calibration) -> str:
    """What the scores of a cross-encoder are."""
    if not calibration.learnt:
        return (
            "Scores are the sigmoid of the logit, here and in `sentence_transformers`. They were not calibrated: "
            "trust their order, not their values."
        )
    pairs = f"{calibration.examples:,} pairs that it did not learn from"
    if calibration.keeps_probabilities:
        return (
            f"Scores are the sigmoid of the logit, here and in `sentence_transformers`: as probabilities, checked on "
            f"{pairs}, they need no other calibration."
        )
    slope, offset = 1 / calibration.temperatures[0], calibration.offset
    sign = "-" if offset < 0 else "+"
    return (
        f"Scores of `rank` are probabilities, calibrated on {pairs}: sigmoid({slope:.4g} * logit {sign} "
        f"{abs(offset):.4g}). "
        "`sentence_transformers` gives sigmoid(logit): other values in the same order."
    )


def source_of_heldout(config: EmbedConfig | RerankConfig, what: str) -> str:
    data = config.data
    return f"`{data.heldout}`" if data.heldout else f"{data.heldout_share:.0%} of its {what}"


def notice(truncated: Truncated, what: str) -> list[str]:
    return [f"{line}." for line in [truncated.notice(what=what)] if line]
