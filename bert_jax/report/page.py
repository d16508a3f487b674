"""A report: one Markdown page with its pictures beside it, of what a model says of labelled examples."""

import shutil
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np

from bert_jax import metrics
from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.data.examples.example import Example
from bert_jax.errors import BertJaxError
from bert_jax.files import replacing
from bert_jax.inference.model import Model, load
from bert_jax.inference.outcomes import Outcomes, outcomes, read, said, true
from bert_jax.predictions.calibration import error
from bert_jax.report import pictures
from bert_jax.report.evaluate import in_lines, of_counts, of_outcomes
from bert_jax.report.facts import Facts, facts
from bert_jax.report.intervals import intervals
from bert_jax.report.views import SURE_UNITS, UNITS, Shown, View, view

WANTED = (0.8, 0.9, 0.95, 0.99)  # precisions
ERRORS = 12  # shown of each kind
LETTERS = 240  # of a text that are shown


def of_file(
    report, directory, data: str, columns: Columns = EVIDENT, long: str = "cut", as_json: bool = False,
    command: str = "",
) -> str:  # fmt: skip
    """Writes the report of a model on a file to the directory `report`; what `evaluate` says of them."""
    model = load(directory)
    examples, known = read(model, data, columns)
    given = outcomes(model, examples, known, long)
    write(report, given, model, title=f"{directory} on {data}", command=command, parts={"scored": examples})
    return in_lines(of_outcomes(given, model), directory, data, as_json)


def write(
    directory,
    given: Outcomes,
    model: Model,
    *,
    title: str,
    command: str,
    parts: Mapping[str, Sequence[Example]],
    curves: Path | None = None,
    longest: int = 0,
) -> Path:
    """`parts` are all examples that are known of by name, the scored ones first; `longest`, the tokens read of one."""
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BertJaxError(f"--report {directory} cannot be written to ({problem.strerror})") from problem
    scored, longest = of_outcomes(given, model), longest or model.config.max_positions
    found = facts(parts, model.tokenizer, longest)
    lines = [f"# {title}", "", f"{scored.task} on {scored.examples:,} examples, {date.today()}.", ""]
    lines += [f"- {note}" for note in scored.notes]
    lines += ["", "## Scores", "", *score_lines(directory, given, model)]
    if given.kind == "number":
        values = (np.array(x, float) for x in (given.found, given.truth))
        lines += ["", picture("said and true numbers", pictures.numbers(directory / "numbers.png", *values))]
    else:
        seen = view(given, model.calibration)
        lines += ["", *class_lines(directory, given, model), "", "## Trust", ""]
        lines += trust_lines(directory, given, model, seen)
        lines += ["", "## Errors", "", *error_lines(seen.shown)]
    lines += ["", "## Data", "", *data_lines(directory, found, longest)]
    if curves is not None and curves.exists():
        shutil.copyfile(curves, directory / "curves.png")
        lines += ["", "## Training", "", picture("losses and scores by step", "curves.png")]
    lines += ["", "## Again", "", f"    {command}", ""]
    with replacing(directory / "report.md") as path:
        path.write_text("\n".join(lines), encoding="utf-8")
    return directory / "report.md"


def picture(what: str, name: str) -> str:
    return f"![{what}]({name})"


def table(header: Sequence[str], rows) -> list[str]:
    rows = list(rows)
    marks = ["---" if isinstance(value, str) else "--:" for value in rows[0]]
    rows = [[cell(value) for value in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (list(header), marks, *rows)]


def cell(value) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else cut(str(value)).replace("|", "\\|")


def cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LETTERS else text[: LETTERS - 2] + " …"


def score_lines(directory: Path, given: Outcomes, model: Model) -> list[str]:
    found = intervals(given, model.calibration)
    rows = [(name, one.value, f"{one.low:.4f} to {one.high:.4f}") for name, one in found.items()]
    lines = table(("score", "value", "95 % interval"), rows)
    lines += [
        "",
        "Intervals are of 2,000 bootstrap resamples of the examples; they know nothing of other data or seeds.",
    ]
    return [*lines, "", picture("scores with intervals", pictures.scores(directory / "scores.png", found))]


def class_lines(directory: Path, given: Outcomes, model: Model) -> list[str]:
    found, truth = said(given, model.calibration), true(given)
    if given.kind == "tags":
        counts = metrics.span_counts(found, truth)
        pairs = [pair for a, b in zip(truth, found, strict=True) for pair in zip(a, b, strict=True)]
    elif given.kind == "answers":
        kinds = [
            ("answer" if any(t) else "none", "answer" if f else "none")
            for t, f in zip(truth, found, strict=True)
        ]
        if not any(pair[0] == "none" for pair in kinds):
            return []
        counts, pairs = {}, kinds
    elif given.kind == "labels":
        both = [a & b for a, b in zip(found, truth, strict=True)]
        counts = {
            label: (sum(label in x for x in both), sum(label in x for x in found), sum(label in x for x in truth))
            for label in given.labels
        }  # fmt: skip
        # What is right against itself, a label that is missing against those that are said instead, or none.
        pairs = [
            pair for f, t in zip(found, truth, strict=True)
            for pair in [(x, x) for x in f & t]
            + [(x, y) for x in (t - f or {"none"}) for y in (f - t or {"none"}) if x != y]
        ]  # fmt: skip
    else:
        pairs = list(zip(truth, found, strict=True))
        counts = {
            label: (pairs.count((label, label)), found.count(label), truth.count(label))
            for label in given.order
        }
    rows = [
        (name, *of_counts(*three).values(), three[1])
        for name, three in sorted(counts.items(), key=lambda item: -item[1][2])
    ]
    lines = table(("class", "f1", "precision", "recall", "true", "said"), rows) if rows else []
    names = list(dict.fromkeys([*given.labels, *(x for pair in pairs for x in pair)]))
    number = {name: i for i, name in enumerate(names)}
    matrix = np.zeros((len(names), len(names)), int)
    np.add.at(matrix, tuple(np.array([[number[a], number[b]] for a, b in pairs]).reshape(-1, 2).T), 1)
    wrong = matrix + matrix.T - 2 * np.diag(matrix.diagonal())
    most = wrong.sum(1) + matrix.sum(1) / max(matrix.sum(), 1)
    kept = np.sort(np.argsort(-most, kind="stable")[: pictures.MOST])
    kept = kept[matrix[kept].sum(1) + matrix[:, kept].sum(0) > 0]
    if len(kept) == pictures.MOST < len(names):
        lines += ["", f"Of {len(names)} classes the {len(kept)} that are most often confused:"]
    path = directory / "confusion.png"
    drawn = pictures.confusion(path, matrix[np.ix_(kept, kept)], [names[i] for i in kept])
    return [*lines, "", picture("how often each class is taken for each", drawn)]


def trust_lines(directory: Path, given: Outcomes, model: Model, seen: View) -> list[str]:
    calibration, units, sure_units = model.calibration, UNITS[given.kind], SURE_UNITS[given.kind]
    if not len(seen.sure):
        return [f"No {sure_units} were given: there is nothing to be sure of."]
    lines = []
    if calibration.learnt:
        apart = (error(each, seen.right) for each in (seen.before, seen.after))
        lines += [
            "Expected calibration error of the {}: {:.4f} before calibration, {:.4f} after.".format(
                units, *apart
            )
        ]
        heat = calibration.temperatures
        if given.kind != "answers":
            spread = f"{heat[0]:.3g}" if len(heat) == 1 else f"{min(heat):.3g} to {max(heat):.3g}, by label"
            lines += [
                f"Temperature {spread}, learnt from {calibration.examples:,} examples that are in no other part."
            ]
    else:
        lines += [
            f"This model was not calibrated. Expected calibration error of the {units}: "
            f"{error(seen.before, seen.right):.4f}."
        ]
    drawn = pictures.reliability(
        directory / "reliability.png", seen.before, seen.after, seen.right, calibration.learnt
    )
    lines += ["", picture("share of right ones by probability", drawn), ""]
    curves = recall_curves(given, model, seen)
    drawn = pictures.precision_recall(directory / "precision_recall.png", curves)
    lines += [picture("precision by recall", drawn), ""]
    drawn = pictures.coverage(directory / "coverage.png", seen.sure, seen.sure_right, sure_units)
    lines += [picture("share of right ones among the surest", drawn)]
    if not calibration.learnt:
        return lines
    rows = []
    for precision in WANTED:
        try:
            enough = calibration.sure(precision)
        except BertJaxError:
            rows.append((f"{precision:g}", "cannot be promised", "", ""))
            continue
        kept = seen.sure >= enough
        share = f"{seen.sure_right[kept].mean():.4f}" if kept.any() else ""
        rows.append((f"{precision:g}", f"{enough:.4f}", f"{kept.mean():.1%}", share))
    lines += [
        "",
        f"`--precision` keeps of the {sure_units} those that are probable enough for the precision promised:",
        "",
    ]
    return lines + table(("promised", "from probability", "kept here", "right of these, here"), rows)


def recall_curves(given: Outcomes, model: Model, seen: View) -> dict:
    if given.kind in ("tags", "answers"):
        return {SURE_UNITS[given.kind]: (seen.sure, seen.sure_right, seen.wanted)}
    likely = model.calibration.likely(np.stack(given.found), several=given.kind == "labels")
    truth = np.stack(given.truth) if given.kind == "labels" else np.eye(len(given.labels))[given.truth]
    often = np.argsort(-truth.sum(0), kind="stable")[: len(pictures.STROKES) - 1]
    curves = {given.labels[i]: (likely[:, i], truth[:, i], int(truth[:, i].sum())) for i in often}
    return curves | {"all together": (likely.ravel(), truth.ravel(), int(truth.sum()))}


def error_lines(shown: Sequence[Shown]) -> list[str]:
    header = ("text", "true", "said", "probability", "where")

    def rows(found):
        return [(one.text, one.true, one.said, one.probability, one.where) for one in found[:ERRORS]]

    wrong = sorted((one for one in shown if not one.right), key=lambda one: -one.probability)
    doubtful = sorted(shown, key=lambda one: one.probability)
    lines = [f"{len(wrong):,} of {len(shown):,} are not wholly right."]
    if wrong:
        lines += ["", "### Surest of what is wrong", "", *table(header, rows(wrong))]
    of_these = sum(not one.right for one in doubtful[:ERRORS])
    lines += ["", "### Most doubtful", "", f"{of_these} of these {len(doubtful[:ERRORS])} are wrong.", ""]
    return [*lines, *table(header, rows(doubtful))]


def data_lines(directory: Path, found: Mapping[str, Facts], longest: int) -> list[str]:
    header = [
        "",
        "examples",
        "median tokens",
        "99 % have at most",
        f"longer than {longest}",
        "repeated texts",
        "contradicting",
    ]
    others = list(found) if len(found) > 1 else []
    rows = []
    for name, one in found.items():
        tokens = (int(np.quantile(one.lengths, q)) for q in (0.5, 0.99))
        row = [name, one.examples, *tokens, f"{one.longer:.2%}", one.repeated, one.conflicting]
        rows.append(row + ["" if other == name else one.shared[other] for other in others])
    lines = table([*header, *(f"texts also in {name}" for name in others)], rows)
    if any(one.labels for one in found.values()):
        lines += ["", picture("share of each class", pictures.balance(directory / "balance.png", found))]
    return [
        *lines,
        "",
        picture("tokens of a text", pictures.lengths(directory / "lengths.png", found, longest)),
    ]
