"""One fine-tuning run by several seeds and settings, in one process: how far chance and choice move its scores.

sweep.md, sweep.png     what came of it, in the directory of them all
SETTING/seed=N/         each run, a directory as of any
model/                  that of the best run, by the setting that is best on average
"""

import ast
import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np

from bert_jax.errors import BertJaxError, NotFinite
from bert_jax.files import replacing
from bert_jax.metrics import nothing_learnt
from bert_jax.report.curves import draw
from bert_jax.report.pictures import ACCENT, INK, drawn
from bert_jax.tasks import load
from bert_jax.tasks.finetune import FinetuneConfig
from bert_jax.train.checkpoint import lower_is_better
from bert_jax.train.log import heldout

SHORT = {"lr": "optimizer.rate", "batch": "data.batch"}
FAR = 0.05
DEVIATIONS = 5  # of the runs' spread around their median, robustly measured


@dataclass
class Run:
    setting: str
    seed: int
    path: Path
    overrides: list[str]
    metric: str = ""
    value: float = float("nan")  # of its best evaluation
    last: dict = field(default_factory=dict)  # what its last evaluation measured
    trouble: str = ""  # why it is degenerate, if it is


def run(
    spec: str, overrides: Sequence[str], config: FinetuneConfig, workdir: Path,
    one: Callable[[Sequence[str], Path], bool],
) -> list[Run] | None:  # fmt: skip
    """Runs all of them by `one(overrides, workdir)`; None if told to stop before the end."""
    runs = planned(overrides, config, workdir)
    for each in runs:
        load(spec, each.overrides)  # every setting is sound before any is run
    for number, each in enumerate(runs, 1):
        if jax.process_index() == 0:
            print(f"run {number} of {len(runs)}: {each.setting} seed {each.seed}", flush=True)
        try:
            if not one(each.overrides, each.path):
                return None
        except NotFinite:
            each.trouble = "updates that are not finite stopped it"
        measure(each, spec)
    point_out(runs)
    return runs


def planned(overrides: Sequence[str], config: FinetuneConfig, workdir: Path) -> list[Run]:
    keys, values = zip(*parsed(config.sweep), strict=True) if config.sweep else ((), ())
    kept = [each for each in overrides if each.split("=")[0] not in ("seeds", "sweep", "seed")]
    runs = []
    for chosen in itertools.product(*values):
        pairs = list(zip(keys, chosen, strict=True))
        name = ",".join(f"{key}={value}" for key, value in pairs) or "as given"
        for seed in range(config.seed, config.seed + config.seeds):
            set_to = [f"{SHORT.get(key, key)}={value}" for key, value in pairs]
            path = workdir / name.replace("/", "_").replace(" ", "_") / f"seed={seed}"
            # A config file may ask for seeds, too: each of them is one run.
            whole = [*kept, *set_to, f"seed={seed}", "seeds=1", "sweep="]
            runs.append(Run(name, seed, path, whole))
    return runs


def parsed(text: str) -> list[tuple[str, list]]:
    """
    >>> parsed("lr=[2e-5,3e-5];batch=[16]")
    [('lr', [2e-05, 3e-05]), ('batch', [16])]
    """
    found = []
    for part in filter(str.strip, text.split(";")):
        key, _, listed = part.partition("=")
        listed = listed.strip()
        if not key.strip() or listed[:1] != "[" or listed[-1:] != "]" or not listed[1:-1].strip():
            raise BertJaxError(
                f'config key sweep: "{part}" is no KEY=[VALUE,VALUE]; as in lr=[2e-5,3e-5];batch=[16,32]'
            )
        found.append((key.strip(), [literal(value.strip()) for value in listed[1:-1].split(",")]))
    return found


def literal(text: str):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def measure(each: Run, spec: str) -> None:
    lines = heldout(each.path / "metrics.jsonl")
    module, config = load(spec, each.overrides)
    each.metric = config.checkpoints.best or module.measured_by(config)
    if lines:
        sign = -1 if lower_is_better(each.metric) else 1
        each.value = max((line[each.metric] for line in lines), key=lambda value: sign * value)
        each.last = {name: value for name, value in lines[-1].items() if name not in ("step", "kind", "time")}


def point_out(runs: Sequence[Run]) -> None:
    """Marks what learnt nothing, what fell back from what it had learnt, and what lies far behind the others."""
    sign = -1 if lower_is_better(runs[0].metric) else 1
    values = sign * np.array([each.value for each in runs])
    middle = np.nanmedian(values)
    spread = 1.4826 * np.nanmedian(np.abs(values - middle))
    for each, value in zip(runs, values, strict=True):
        if each.trouble or not each.last:
            each.trouble = each.trouble or "it was never measured"
        elif nothing := nothing_learnt(each.last):
            each.trouble = nothing
        elif value - sign * each.last[each.metric] > max(FAR, 0.1 * abs(value)):
            each.trouble = f"its last evaluation, {each.last[each.metric]:.4f}, is far below its best"
        elif middle - value > max(DEVIATIONS * spread, FAR * max(abs(middle), 1)):
            each.trouble = f"far from the others, whose median is {sign * middle:.4f}"


def settle(workdir: Path, runs: list[Run]) -> Run:
    """Writes what came of the runs, and puts the best one's model and curves where those of a single run would be."""
    sound = [each for each in runs if not each.trouble] or [each for each in runs if each.last]
    if not sound:
        raise BertJaxError(f"none of the runs in {workdir} came to a result; begin again with a lower rate")
    sign = -1 if lower_is_better(sound[0].metric) else 1
    settings = list(dict.fromkeys(each.setting for each in runs))
    means = {s: np.mean([sign * x.value for x in sound if x.setting == s] or [-np.inf]) for s in settings}
    best_setting = max(settings, key=means.__getitem__)
    chosen = max((x for x in sound if x.setting == best_setting), key=lambda x: sign * x.value)
    text = in_lines(runs, settings, chosen)
    picture(workdir / "sweep.png", runs, settings)
    with replacing(workdir / "sweep.md") as path:
        path.write_text(text + "\n\n![each run's score, by setting](sweep.png)\n", encoding="utf-8")
    print(text, flush=True)
    shutil.copytree(chosen.path / "model", workdir / "model", dirs_exist_ok=True)
    draw(chosen.path / "metrics.jsonl", workdir / "curves.png")
    return chosen


def in_lines(runs: Sequence[Run], settings: Sequence[str], chosen: Run) -> str:
    """A Markdown table of the settings; means are of the runs that are not degenerate."""
    lines = [f"| setting | mean {chosen.metric} | standard deviation | best | runs | degenerate |"]
    lines += ["| --- | --: | --: | --: | --: | --: |"]
    for setting in settings:
        here = [each for each in runs if each.setting == setting]
        values = np.array([each.value for each in here if not each.trouble])
        shown = ["", "", ""]
        if len(values):
            best = values.min() if lower_is_better(chosen.metric) else values.max()
            spread = f"{values.std(ddof=1):.4f}" if len(values) > 1 else ""
            shown = [f"{values.mean():.4f}", spread, f"{best:.4f}"]
        lines.append(f"| {setting} | {' | '.join(shown)} | {len(here)} | {len(here) - len(values)} |")
    lines += [""]
    lines += [
        f"- degenerate: {each.setting} seed {each.seed}: {each.trouble}" for each in runs if each.trouble
    ]
    return "\n".join(
        [*lines, f"- the model is that of {chosen.setting} seed {chosen.seed}, {chosen.value:.4f}"]
    )


def picture(path: Path, runs: Sequence[Run], settings: Sequence[str]) -> str:
    def draw(axes):
        for place, setting in enumerate(reversed(settings)):
            here = [each for each in runs if each.setting == setting]
            sound = [each.value for each in here if not each.trouble]
            axes.plot([x.value for x in here if x.trouble], [place] * (len(here) - len(sound)), "x", color="#d95f02",
                      markersize=9, markeredgewidth=2, label="degenerate")  # fmt: skip
            axes.plot(sound, [place] * len(sound), "o", color=ACCENT, alpha=0.6, markersize=7, label="a run")
            if sound:
                axes.plot(
                    np.mean(sound), place, "|", color=INK, markersize=22, markeredgewidth=2, label="mean"
                )
        axes.set_yticks(range(len(settings)), list(reversed(settings)), fontsize=8)
        axes.set_ylim(-0.6, len(settings) - 0.4)
        axes.set_xlabel(runs[0].metric.replace("_", " "), fontsize=9)
        axes.grid(axis="x", color="0.9")
        named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(
            named.values(),
            named,
            fontsize=8,
            frameon=False,
            loc="lower center",
            bbox_to_anchor=(0.5, 1),
            ncols=3,
        )

    return drawn(path, (6, 1.4 + 0.4 * len(settings)), draw)
