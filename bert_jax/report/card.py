"""The README.md of an embedder's directory: what it is, what it learnt from and how, and how well it does."""

from pathlib import Path

from bert_jax import hashes
from bert_jax.files import write_atomically
from bert_jax.hub.layout import Layout
from bert_jax.tasks.embed_config import EmbedConfig
from bert_jax.tasks.embedding import Embedding
from bert_jax.train.checkpoint import standing
from bert_jax.train.log import heldout

FILE = "README.md"
HEADER = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, feature-extraction, bert_jax]
---
"""


def write(model: Path, metrics: Path, task: Embedding, config: EmbedConfig, command: str) -> None:
    """Beside the model of a run, of which `metrics` tells the scores."""
    path = model / FILE
    parts = [
        HEADER,
        f"# {model.parent.name}\n",
        *usage(task.layout, config),
        *learnt_from(task, config),
        *recipe(task, config, command),
        *scores(metrics, config),
    ]
    write_atomically(path, "\n".join(parts))
    hashes.update(model, FILE)


def usage(layout: Layout, config: EmbedConfig) -> list[str]:
    embedder = layout.embedder
    assert embedder
    asked = {name: text for name, text in embedder.prompts.items() if text}
    prompt = f', prompt="{next(iter(asked))}"' if asked else ""
    named = prompt.replace("prompt=", "prompt_name=")
    return [
        f"An embedder of {layout.vector_size} dimensions: texts that belong together get vectors of one direction.",
        f"It reads the first {embedder.max_length} tokens of a text; the rest is truncated.",
        *[f"Its first {' or '.join(map(str, config.loss.sizes))} dimensions do as vectors, too."]
        * bool(config.loss.sizes),
        *[f'Before a {name} stands "{text}".' for name, text in asked.items()],
        "",
        "```python",
        "import bert_jax",
        f'bert_jax.load("DIR").embed(["a text"]{prompt})',
        "",
        "from sentence_transformers import SentenceTransformer",
        f'SentenceTransformer("DIR").encode(["a text"]{named})',
        "```",
        "",
    ]


def learnt_from(task: Embedding, config: EmbedConfig) -> list[str]:
    about = task.about
    assert about
    files = ", ".join(f"`{spec}`" for spec in config.data.train)
    held = (
        f"`{config.data.heldout}`"
        if config.data.heldout
        else f"{config.data.heldout_share:.0%} of its documents"
    )
    lines = [
        "## Data\n",
        f"{about.groups:,} groups of {task.texts} texts, of {files}; {about.heldout:,} held out, {held}.",
    ]
    if about.truncated:
        verbs = ("is", "was") if about.truncated == 1 else ("are", "were")
        lines.append(
            f"{about.truncated:,} of {about.texts:,} texts {verbs[0]} longer than {config.data.max_length} tokens and "
            f"{verbs[1]} truncated."
        )
    return [*lines, ""]


def recipe(task: Embedding, config: EmbedConfig, command: str) -> list[str]:
    settings = task.settings
    facts = {
        "begins from": f"`{config.init}`",
        "loss": task.loss.name + " in both directions" * settings.symmetric,
        "scale of cosines": f"{settings.scale:g}{', learnt from there' * task.learns_scale}",
        "margin": f"{settings.margin:g}" if settings.margin else "",
        "teacher": f"`{config.loss.teacher}`" if config.loss.teacher else "",
        "groups of a step": f"{config.batch:,}",
        "steps": f"{config.steps:,}",
        "learning rate": f"{config.optimizer.rate:g}, {config.optimizer.name}, {config.optimizer.schedule}",
        "seed": str(config.seed),
    }
    rows = [f"| {name} | {value} |" for name, value in facts.items() if value]
    return ["## Training\n", "| | |", "| --- | --- |", *rows, "", "```", command, "```", ""]


def scores(metrics: Path, config: EmbedConfig) -> list[str]:
    """Of the checkpoint that the model is of."""
    measured = heldout(metrics)
    if not measured:
        return []
    best = config.checkpoints.best
    line = max(measured, key=lambda line: (standing(best, line), line["step"])) if best else measured[-1]
    values = {name: value for name, value in line.items() if isinstance(value, float)}
    rows = [f"| {name} | {value:.4f} |" for name, value in values.items()]
    return [
        f"## Scores on what was held out, after step {line['step']:,}\n",
        "| | |",
        "| --- | ---: |",
        *rows,
        "",
    ]
