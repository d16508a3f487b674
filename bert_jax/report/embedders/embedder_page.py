"""Write the report of one embedder, or a comparison of two: a Markdown page and its pictures."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from bert_jax.core.files import write_atomically
from bert_jax.metrics.intervals import RESAMPLES, difference_intervals
from bert_jax.report.embedders.embedder_results import EmbedderResults, EvaluationData
from bert_jax.report.prediction_page import interval_lines, markdown_table


def write_embedder_report(
    directory: Path, data: EvaluationData, measured: Sequence[EmbedderResults], command: str
) -> None:
    a, *others = measured
    other = others[0] if others else None
    title = f"{a.name} (A) and {other.name} (B)" if other else a.name
    lines = [f"# {title} on {data.what}", "", f"{date.today()}.", ""]
    lines += [*(f"- {note}" for note in collect_notes(data, measured)), "", "## Scores", ""]
    lines += comparison_table(a, other, data.units) if other else interval_lines(a.sums, data.units)
    lines.append("")
    for picture in a.pictures(directory, other):
        lines += picture.lines
    for examples in a.compare_with(other) if other else [a.worst_examples]:
        lines += examples.lines
    lines += ["## Reproduce", "", f"    {command}", ""]
    write_atomically(directory / "report.md", "\n".join(lines))


def collect_notes(data: EvaluationData, measured: Sequence[EmbedderResults]) -> list[str]:
    """Return the notes on the data, and on how each embedder read it."""
    names = ["", ""] if len(measured) == 1 else ["A: ", "B: "]
    return [
        *data.notes,
        *(f"{name}{note}" for name, side in zip(names, measured, strict=False) for note in side.notes),
    ]


def comparison_table(a: EmbedderResults, b: EmbedderResults, units: str) -> list[str]:
    """Return a table of the scores of both embedders and their differences, and a note."""
    first, second = a.sums.scores, b.sums.scores
    rows = [
        (
            name,
            first[name],
            second[name],
            f"{gap.value:+.4f}",
            f"{gap.low:+.4f} to {gap.high:+.4f}",
            "" if gap.low <= 0 <= gap.high else "yes",
        )
        for name, gap in difference_intervals(a.sums, b.sums).items()
    ]
    note = (
        f"Intervals come from {RESAMPLES:,} bootstrap resamples of the {units}, the same for both; they do not "
        "cover other data or seeds. A difference is significant if its interval excludes 0."
    )
    return [
        *markdown_table(("score", "A", "B", "B - A", "95 % interval", "significant"), rows),
        "",
        note,
    ]
