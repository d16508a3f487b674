"""The model card (README.md) of a model directory: usage, data, training, scores and calibration."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bert_jax.core.files import write_atomically
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions.kind import Outcomes
from bert_jax.report.prediction_page import interval_lines
from bert_jax.training.best_evaluation import read_kept_metrics
from bert_jax.training.run_config import RunConfig
from bert_jax.training.task import ModelCard, Task

CARD_FILE = "README.md"
TAG = "bert_jax"  # on the card of every model that a run writes


@dataclass(frozen=True)
class TrainingRecord:
    """The run that trained the model."""

    config: RunConfig
    metrics: Path
    command: str
    # What the scores and their intervals are computed from; None: the card has the metrics of the validation alone.
    outcomes: Outcomes | None = None
    scored: str = ""  # what the outcomes are of


def write_card(model: Path, task: Task, run: TrainingRecord) -> None:
    """Write the card into the model's directory; the task must have a card."""
    card = task.model_card
    assert card
    parts = [
        *card_metadata(card),
        f"# {model.parent.name}\n",
        *[*card.about, "", "```python", card.usage, "```", ""],
        *["## Data\n", *card.data, ""],
        *training_lines(card, run),
        *validation_score_lines(run),
    ]
    if card.describe_calibration:
        calibration = calibrations.read_calibration(model, task.layout.labels)
        parts += ["## Calibration\n", card.describe_calibration(calibration), ""]
    write_atomically(model / CARD_FILE, "\n".join(parts))


def card_metadata(card: ModelCard) -> list[str]:
    """Return the metadata by which Hugging Face sorts models."""
    tags = ", ".join([card.library, *card.tags, TAG])
    facts = f"library_name: {card.library}", f"pipeline_tag: {card.pipeline}", f"tags: [{tags}]"
    return ["---", *facts, "---", ""]


def was_written_by_run(model: Path) -> bool:
    """Whether a run wrote the card of a model's directory."""
    path = model / CARD_FILE
    head = path.read_text(encoding="utf-8", errors="replace").split("\n")[:4] if path.is_file() else []
    return any(line.startswith("tags: [") and line.endswith(f", {TAG}]") for line in head)


def training_lines(card: ModelCard, run: TrainingRecord) -> list[str]:
    config = run.config
    optimizer = config.optimizer
    facts = {
        "starts from": f"`{config.init}`",
        **card.recipe,
        "steps": f"{config.steps:,}",
        "learning rate": f"{optimizer.learning_rate:g}, {optimizer.name}, {optimizer.schedule}",
        "seed": str(config.seed),
    }
    return ["## Training\n", *value_table(facts, "---"), "", "```", run.command, "```", ""]


def validation_score_lines(run: TrainingRecord) -> list[str]:
    """Return the scores with their intervals or, without outcomes, those of the checkpoint that became the model."""
    if run.outcomes:
        scores = interval_lines(run.outcomes.score_sums, baseline=run.outcomes.baseline)
        return [f"## Scores: {run.scored}\n", *scores, ""]
    line = read_kept_metrics(run.metrics, run.config.checkpoints.best_metric)
    if not line:
        return []
    values = {name: f"{value:.4f}" for name, value in line.items() if isinstance(value, float)}
    return [
        f"## Scores on the validation set, after step {line['step']:,}\n",
        *value_table(values, "---:"),
        "",
    ]


def value_table(values: Mapping[str, str], alignment: str) -> list[str]:
    """Return the lines of a Markdown table, with a row for each value that is not ""."""
    lines = [f"| {name} | {value} |" for name, value in values.items() if value]
    return ["| | |", f"| --- | {alignment} |", *lines]
