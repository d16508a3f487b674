"""`positions`: what models with each kind of positions learn in short rows, and predict in longer ones.

WORKDIR/learned/, WORKDIR/alibi/, ...  the runs, each with its evaluations
WORKDIR/table.md, WORKDIR/positions.png  the losses

The models differ in nothing else. Rows of every length hold the same validation texts and have the same share of their
tokens masked.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bert_jax.core.files import write_atomically
from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES, bert, sinusoidal_bert
from bert_jax.models.encoder_config import RotaryConfig
from bert_jax.report.plots import STROKES, put_legend_above, save_plot
from bert_jax.report.prediction_page import markdown_table
from bert_jax.runs.run import run_from_config
from bert_jax.training.log import validation_lines
from bert_jax.training.workdir import Workdir
from tests.bench.recipe import Recipe

TOKENS = 8192  # of a batch of validation rows
THETA = 10_000.0
ROTARY = "rotary_bert"
KINDS = {
    "learned": ("model.positions=learned",),
    "sinusoidal": ("model.positions=sinusoidal",),
    "RoPE": (f"family={ROTARY}",),
    "ALiBi": ("model.positions=alibi",),
}
# BERT with rotary positions alone: no published family has them without other differences.
FAMILIES[ROTARY] = replace(
    bert.FAMILY,
    model_type=ROTARY,
    published_type="bert",
    recognizes=lambda published: "rotary_theta" in published,
    new_models=False,
    constants={"positions": "none", "rotary": RotaryConfig(THETA)},
    derived_keys=lambda config: {"rotary_theta": config.rotary.theta},
    encoder=sinusoidal_bert.encoder,
)


def compare_positions(recipe: Recipe, lengths: Sequence[int], workdir: str, command: str) -> str:
    path, losses = Path(workdir), dict[str, list[float]]()
    longest = f"model.max_position_embeddings={max(lengths)}"
    for kind, settings in KINDS.items():
        run = path / kind.lower()
        recipe.train(run, command, longest, *settings)
        losses[kind] = [validation_loss(run, recipe, length, command) for length in lengths]
    draw_losses(path / "positions.png", lengths, losses)
    rows = [(kind, *(f"{loss:.3f}" for loss in values)) for kind, values in losses.items()]
    text = "\n".join(markdown_table(["positions", *(f"{length:,} tokens" for length in lengths)], rows))
    write_atomically(path / "table.md", text + "\n")
    return text


def validation_loss(run: Path, recipe: Recipe, length: int, command: str) -> float:
    """Return the loss of masked words in validation rows of this length."""
    layout, workdir = hub.ModelDirectory.open(run / "model").layout, Workdir(run / f"rows-of-{length}")
    values = {"task": "pretrain", "family": layout.family.model_type, "model": layout.config.changed_fields}
    values |= {name: value for name, value in recipe.values.items() if name in ("data", "log")}
    settings = [text for text in recipe.settings if text.startswith(("data.", "log."))]
    settings += [f"init={run / 'model'}", "steps=0", "first_step=0", "data.length_ratios=1"]
    settings += [f"data.lengths={length}", f"data.batch_size={TOKENS // length}"]
    run_from_config(values, settings, str(workdir.path), command)
    return validation_lines(workdir.metrics)[-1]["mlm_loss"]


def draw_losses(path: Path, lengths: Sequence[int], losses: dict[str, list[float]]) -> None:
    def draw(axes):
        for (kind, values), (colour, line), marker in zip(losses.items(), STROKES, "osD^", strict=False):
            axes.plot(lengths, values, color=colour, linestyle=line, marker=marker, label=kind)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.set_xlabel("tokens in a row", fontsize=9)
        axes.set_ylabel("loss of masked words", fontsize=9)
        axes.grid(color="0.9")
        put_legend_above(axes, len(losses))

    save_plot(path, (5.5, 3.2), draw)
