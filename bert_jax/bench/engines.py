"""`bert-jax bench engines`: the quality and the speed of models by every engine and type of number, in one table and
one picture."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bert_jax.bench.timing import describe_load, rounded
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.progress import track
from bert_jax.export.onnx_directory import export_onnx
from bert_jax.hub.local_directory import resolve_directory
from bert_jax.hub.onnx_files import AUTO, find_onnx_file
from bert_jax.hub.tensors import weight_files
from bert_jax.inference.engine import ENGINES, ONNX_ENGINES, installed_onnx_engines
from bert_jax.metrics.intervals import Interval
from bert_jax.report.plots import INK, STROKES, put_legend_above, save_plot

MARKERS = "osD^vP"


@dataclass(frozen=True)
class MeasuredEngine:
    model: str  # as the user wrote it
    engine: str
    dtype: str
    bytes: int  # of the weights on disk
    figures: dict[str, Any]  # see `measure_engine`

    @property
    def name(self) -> str:
        return f"{self.engine} {self.dtype}"

    @property
    def score(self) -> Interval:
        return Interval(**self.figures["score"])


def measure_engines(
    models: Sequence[str], data: str, calibration_data: str, texts: int, picture: str | None, as_json: bool
) -> str:
    """Measure each model by each engine, one after the other, each in a process of its own."""
    with TemporaryDirectory(prefix="bert-jax-") as scratch:
        variants = [
            variant
            for number, model in enumerate(models)
            for variant in list_variants(model, f"{scratch}/{number}", calibration_data)
        ]
        measured = [measure(*variant, data, texts) for variant in track(variants, "engines", "measuring")]
    if picture:
        plot_engines(Path(picture), measured)
    if as_json:
        return to_json([asdict(result) for result in measured])
    return "\n".join(format_table(measured))


def list_variants(model: str, exported: str, calibration_data: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield (model, directory, engine, dtype); the model is exported to a new directory."""
    for dtype in ("float32", "bfloat16"):
        yield model, model, "jax", dtype
    export_onnx(model, exported, AUTO, calibration_data)
    for engine in installed_onnx_engines():
        for dtype in ENGINES[engine].dtypes:
            if dtype != "int8" or calibration_data or not ENGINES[engine].static_only:
                yield model, exported, engine, dtype


def measure(model: str, directory: str, engine: str, dtype: str, data: str, texts: int) -> MeasuredEngine:
    request = json.dumps([directory, engine, dtype, data, texts])
    command = [sys.executable, "-m", "bert_jax.bench.engine_process", request]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BertJaxError((done.stderr.strip().splitlines() or [f"{engine} {dtype} was killed"])[-1])
    return MeasuredEngine(
        model, engine, dtype, weight_bytes(directory, engine, dtype), json.loads(done.stdout.splitlines()[-1])
    )


def weight_bytes(directory: str, engine: str, dtype: str) -> int:
    if engine in ONNX_ENGINES:
        file = find_onnx_file(Path(directory), dtype).path
        return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))
    return sum(file.stat().st_size for file in weight_files(resolve_directory(directory)))


def format_table(measured: Sequence[MeasuredEngine]) -> list[str]:
    metric = measured[0].figures["metric"]
    header = ["", f"{metric} (95% interval)", "texts/s", "alone, p50 ms", "on disk MB", "memory MB", "load s"]
    rows, model = [header], ""
    for result in measured:
        if result.model != model and len({other.model for other in measured}) > 1:
            rows.append([result.model, *[""] * (len(header) - 1)])
        model, figures, score = result.model, result.figures, result.score
        rows.append([
            f"  {result.name}", f"{score.value:.4f} ({score.low:.4f} to {score.high:.4f})",
            rounded(figures["texts_per_second"]), rounded(figures["one_text_p50_ms"]), rounded(result.bytes / 1e6),
            rounded(figures["peak_bytes"] / 1e6), rounded(figures["load_seconds"]),
        ])  # fmt: skip
    widths = [max(len(row[column]) for row in rows if row[1] or not column) for column in range(len(header))]
    lines = []
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    busiest = max(
        (result.figures["machine"] for result in measured), key=lambda machine: machine["others"] or 0
    )
    return [*lines, describe_load(busiest)]


def plot_engines(path: Path, measured: Sequence[MeasuredEngine]) -> None:
    """Draw the score of each engine over its speed; the colour is the model, the marker the engine."""
    models, names = (
        list(dict.fromkeys(getattr(result, key) for result in measured)) for key in ("model", "name")
    )

    def draw(axes):
        for result in measured:
            score, colour = result.score, STROKES[models.index(result.model) % len(STROKES)][0]
            marker = MARKERS[names.index(result.name) % len(MARKERS)]
            axes.errorbar(
                result.figures["texts_per_second"], score.value,
                [[max(score.value - score.low, 0)], [max(score.high - score.value, 0)]],
                color=colour, marker=marker, capsize=3, linestyle="none",
            )  # fmt: skip
        for name in names:
            marker = MARKERS[names.index(name) % len(MARKERS)]
            axes.plot([], [], color=INK, marker=marker, linestyle="none", label=name)
        for model in models if len(models) > 1 else ():
            colour = STROKES[models.index(model) % len(STROKES)][0]
            axes.plot([], [], color=colour, linewidth=4, label=Path(model).name)
        axes.set_xscale("log")
        for axis in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            axis(lambda speed, _: f"{speed:,.0f}")
        axes.set_xlabel("texts per second, in batches", fontsize=9)
        axes.set_ylabel(f"{measured[0].figures['metric']}, with its 95% interval", fontsize=9)
        axes.grid(color="0.9", which="both")
        axes.set_axisbelow(True)
        put_legend_above(axes, 3)

    path.parent.mkdir(parents=True, exist_ok=True)
    save_plot(path, (7, 4.5), draw)
