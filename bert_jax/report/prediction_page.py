"""The report on a model's predictions for labelled examples: a Markdown page, with its pictures beside it."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from bert_jax.core.output import building
from bert_jax.core.terminal import counted
from bert_jax.data.examples.example import Example
from bert_jax.inference.model import Model, load
from bert_jax.metrics import sums as metrics
from bert_jax.metrics.sums import Sums
from bert_jax.predictions.fitting import error
from bert_jax.predictions.kind import Baseline, Kind, Outcomes
from bert_jax.predictions.label_errors import LabelError
from bert_jax.predictions.view import CURVES, ENOUGH, Shown, View
from bert_jax.report import plots
from bert_jax.report.confusions import Confusions
from bert_jax.report.data_facts import Facts, contradictions, facts, label
from bert_jax.report.evaluate_predictions import Trial, in_lines, measure, score
from bert_jax.report.intervals import RESAMPLES, intervals, wilson
from bert_jax.report.learning_curve import LearningCurve
from bert_jax.report.learning_curve import picture as draw_learning_curve
from bert_jax.report.out_of_scope_detection import Foreign, areas
from bert_jax.report.out_of_scope_detection import picture as draw_scope

WANTED = (0.8, 0.9, 0.95, 0.99)  # the precisions in the table of promises
ERRORS = 12  # the number of errors shown of each sort
# If a few classes had 1 to 3 examples, simulated 95 % intervals of f1_macro contained the true score in 44 to 88 %.
FEWEST_OF_CLASS = 4
FILES = {"report.md"} | {
    f"{name}.png"
    for name in ("scores", "numbers", "confusion", "reliability", "precision_recall", "coverage", "balance", "lengths",
                 "learning_curve", "scope", "curves", "recall", "cosines", "cosines_a", "cosines_b", "clusters",
                 "clusters_a", "clusters_b")
}  # fmt: skip
LETTERS = 240  # the number of characters of a text that are shown


def describe_with_report(report, directory, trial: Trial, as_json: bool = False, command: str = "") -> str:
    """Return the lines of `evaluate`, and write the report to the directory `report`."""
    with building(Path(report), FILES) as new:
        model = load(directory)
        given, compared = measure(model, trial)
        about = About(f"{directory} on {trial.data}", command, {"scored": given.examples}, foreign=compared)
        write(new, given, model, about)
    return in_lines(score(given, compared), directory, trial.data, as_json)


@dataclass(frozen=True)
class About:
    """What a report says in addition to the predictions."""

    title: str
    command: str
    parts: Mapping[str, Sequence[Example]]  # all known examples by part, the scored part first
    curves: Path | None = None  # the picture of the training curves
    learning_curve: LearningCurve | None = None
    foreign: Foreign | None = None  # foreign texts, compared with the scored examples
    unseen: str = ""  # a sentence: the model was not trained on the scored examples; "" if unknown
    trained_length: int = 0  # the most tokens of a text that training read; 0 if unknown or all


def write(directory: Path, given: Outcomes, model: Model, about: About) -> None:
    scored, view, longest = score(given), given.view, model.config.max_positions
    lines = [f"# {about.title}", "", f"{scored.task} on {scored.examples:,} examples, {date.today()}.", ""]
    lines += [f"- {note}" for note in scored.notes]
    few = sum(0 < true < FEWEST_OF_CLASS for _, _, true in view.counts.values())
    scores = interval_lines(directory, given.sums, baseline=given.baseline, few=few)
    lines += ["", "## Scores", "", *scores, ""]
    if view.numbers:
        drawn = plots.numbers(directory / "numbers.png", *view.numbers)
        lines += [picture("predicted and true numbers", drawn), ""]
    if view.pairs:
        lines += [*class_lines(directory, given, view), ""]
    if view.shown:
        lines += ["## Trust", "", *trust_lines(directory, given, view), ""]
        lines += ["## Errors", "", *error_lines(view.shown, given.kind.one_label), ""]
    if about.foreign:
        lines += ["## Out of scope", "", *foreign_lines(directory, about.foreign), ""]
    if learning_curve := about.learning_curve:
        drawn = draw_learning_curve(directory / "learning_curve.png", learning_curve)
        lines += [
            "## Would more labels help?",
            "",
            f"A probe of the frozen encoder: {learning_curve.in_words()}.",
            "",
        ]
        lines += [picture("scores by the number of labels", drawn), ""]
    if errors := given.label_errors:
        lines += ["## Probable label errors", "", *label_error_lines(errors, given.kind, about.unseen), ""]
    known = facts(about.parts, model.tokenizer, longest, given.kind)
    lines += ["## Data", "", *data_lines(directory, known, longest)]
    if 0 < about.trained_length < longest:
        lines += [
            "",
            f"Training read at most {about.trained_length:,} tokens of a text (data.max_length); these predictions "
            f"read up to {longest:,}.",
        ]
    every = contradictions((example for examples in about.parts.values() for example in examples), given.kind)
    lines += contradiction_lines(every, given.kind)
    if about.curves is not None and about.curves.exists():
        shutil.copyfile(about.curves, directory / "curves.png")
        lines += ["", "## Training", "", picture("losses and scores by step", "curves.png")]
    lines += ["", "## Reproduce", "", f"    {about.command}", ""]
    write_atomically(directory / "report.md", "\n".join(lines))


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


def interval_lines(
    directory: Path, sums: Sums, units: str = "examples", baseline: Baseline | None = None, few: int = 0
) -> list[str]:
    """Show the scores with their intervals and the baseline; `few` classes have fewer than FEWEST_OF_CLASS examples."""
    scores = intervals(sums)
    header: tuple[str, ...] = ("score", "value", "95 % interval")
    rows: list[tuple] = [(name, x.value, f"{x.low:.4f} to {x.high:.4f}") for name, x in scores.items()]
    if baseline:
        header = (*header, baseline.name)
        rows = [(*row, baseline.scores.get(row[0], "")) for row in rows]
    note = (
        f"Intervals are percentiles of {RESAMPLES:,} bootstrap resamples of the {units}, corrected for bias and scaled "
        "to the standard error by the jackknife; they do not cover other data or seeds."
    )
    if any(x.low < x.value == x.high == 1 for x in scores.values()):
        note += (
            f" The interval of a score of 1 is Wilson's, for {len(sums.rows):,} {units} that are all right."
        )
    if biased := [name for name, x in scores.items() if not x.low <= x.value <= x.high]:
        note += (
            f" Many classes with few examples bias {' and '.join(biased)}, so the corrected interval does not contain "
            "the value."
        )
    if few and (of_classes := [name for name in scores if name.endswith("_macro")]):
        classes = f"{counted(few, 'class')} {'has' if few == 1 else 'have'}"
        note += (
            f" {classes} fewer than {FEWEST_OF_CLASS} examples, so the interval of {' and '.join(of_classes)} may be "
            "too narrow."
        )
    drawn = plots.scores(directory / "scores.png", scores)
    return [
        *table(header, rows),
        "",
        note,
        "",
        picture("scores with intervals", drawn),
    ]


def class_lines(directory: Path, given: Outcomes, view: View) -> list[str]:
    occurring = {name: three for name, three in view.counts.items() if three[1] or three[2]}
    by_frequency = sorted(occurring.items(), key=lambda item: -item[1][2])
    rows = [(name, *metrics.shares(*three).values(), three[2], three[1]) for name, three in by_frequency]
    lines = table(("class", "f1", "precision", "recall", "true", "predicted"), rows) if rows else []
    if absent := len(view.counts) - len(occurring):
        lines += [
            "",
            f"Left out: {counted(absent, 'class')} that no example has and the model never predicted.",
        ]
    confusions = Confusions.of(view.pairs, given.kind.labels)
    return [*lines, "", *confusion_lines(directory, confusions)]


def confusion_lines(directory: Path, confusions: Confusions) -> list[str]:
    largest = confusions.largest
    if not largest:
        return ["No class is confused with another."]
    counts, true, predicted = confusions.matrix(plots.MOST)
    drawn = plots.confusion(directory / "confusion.png", counts, true, predicted)
    total = sum(count for *_, count in largest)
    rows = [(*confusion, f"{confusion[2] / total:.1%}") for confusion in largest[:ERRORS]]
    largest_ones = table(("true", "predicted", "count", "share of all confusions"), rows)
    return [picture("confusion matrix", drawn), "", "### Largest confusions", "", *largest_ones]


def trust_lines(directory: Path, given: Outcomes, view: View) -> list[str]:
    calibration, kind = given.calibration, given.kind
    if not len(view.confidence):
        return [f"No {kind.abstention_units} were predicted: there is no confidence to judge."]
    before, after = (error(likely, view.right) for likely in (view.before, view.after))
    if calibration.learnt:
        lines = [
            f"Expected calibration error of these {kind.units}: {before:.4f} before calibration, {after:.4f} after."
        ]
        count = f"{calibration.examples:,} examples, each predicted by a model that did not learn from it"
        if calibration.keeps_probabilities:
            lines += [f"Probabilities stay as they are: no temperature fits better. Learnt from {count}."]
        elif temperature := kind.temperature(calibration):
            lines += [f"{temperature.capitalize()}, learnt from {count}."]
        if not calibration.keeps_probabilities:
            lines += [
                "On examples that the temperature was not learnt from: log loss "
                f"{calibration.loss_before:.4f} before, {calibration.loss_after:.4f} after; expected calibration error "
                f"{calibration.error_before:.4f} before, {calibration.error_after:.4f} after."
            ]
    else:
        lines = [
            f"This model was not calibrated. Expected calibration error of the {kind.units}: {before:.4f}."
        ]
    drawn = plots.reliability(directory / "reliability.png", view, calibration.learnt)
    lines += ["", picture("reliability diagram: accuracy by confidence", drawn), ""]
    drawn = plots.precision_recall(directory / "precision_recall.png", view.curves)
    lines += [f"{of_curves(view)}:", "", picture("precision by recall", drawn), ""]
    drawn = plots.coverage(directory / "coverage.png", view, kind.abstention_units)
    lines += [picture("accuracy by coverage", drawn)]
    return lines + promise_lines(given, view) if calibration.learnt else lines


def of_curves(view: View) -> str:
    which = ""
    if len(view.counts) > CURVES:
        which = f" of the {CURVES} worst classes (those with fewer than {ENOUGH} true examples come last)"
    return f"Precision by recall{which}, with the number of true examples"


def promise_lines(given: Outcomes, view: View) -> list[str]:
    rows = []
    for precision in WANTED:
        try:
            enough = given.calibration.floor(precision)
        except BertJaxError:
            rows.append((f"{precision:g}", "cannot be promised", "", "", ""))
            continue
        kept = view.confidence >= enough
        count, right = int(kept.sum()), int(view.correct[kept].sum())
        low, high = wilson(right, max(count, 1))
        shares = (f"{right / count:.4f}", f"{low:.4f} to {high:.4f}") if count else ("", "")
        rows.append(
            (f"{precision:g}", f"{enough:.4f}", f"{count:,} of {len(kept):,} ({kept.mean():.1%})", *shares)
        )
    units = given.kind.abstention_units
    note = (
        f"`--precision` keeps the {units} that are probable enough for the promised precision. A promise holds only "
        "for texts like those kept for calibration: from the same sources, labelled by the same rules."
    )
    header = (
        "promised precision",
        "minimum probability",
        f"{units} kept here",
        "precision here",
        "95 % interval",
    )
    return ["", note, "", *table(header, rows)]


def foreign_lines(directory: Path, given: Foreign) -> list[str]:
    scores = given.scores
    lines = [
        f"Texts that the model should refuse: {scores.foreign:,}. Scored texts beside them: {scores.known:,}. "
        "`in_scope` is the share of known texts that are no more similar to the training texts than this text is."
        + " It was learnt from the scored texts themselves, so the share of them called foreign is as requested; "
        "`evaluate --foreign` measures it on others." * given.learnt,
        "",
        *table(("area under the curve", "value"), [(name, value) for name, value in areas(scores).items()]),
        "",
    ]
    rows = [(f"{row.at:g}", row.known, row.foreign) for row in scores.called]
    lines += table(
        ("foreign if in_scope is below", "scored texts called foreign", "foreign texts called foreign"), rows
    )
    return [
        *lines,
        "",
        picture("similarity to the training texts", draw_scope(directory / "scope.png", given)),
    ]


def error_lines(shown: Sequence[Shown], one_label: bool) -> list[str]:
    header = ("text", "true", "predicted", "probability", "where")

    def different(examples: Sequence[Shown]) -> list[list[Shown]]:
        """Group the examples that have equal texts, labels and predictions; return the first ERRORS groups."""
        groups = dict[tuple, list[Shown]]()
        for e in examples:
            groups.setdefault((e.text, e.true, e.predicted), []).append(e)
        return list(groups.values())[:ERRORS]

    def rows(groups: Sequence[Sequence[Shown]]):
        return [
            (e.text, e.true, e.predicted, e.probability, e.where + f" and {len(more):,} more" * bool(more))
            for e, *more in groups
        ]

    wrong = sorted((example for example in shown if not example.right), key=lambda e: -e.probability)
    doubtful = different(sorted(shown, key=lambda example: example.probability))
    lines = [
        f"{len(wrong):,} of {len(shown):,} predictions are {'wrong' if one_label else 'not entirely right'}."
    ]
    if wrong:
        lines += ["", "### Most confident errors", "", *table(header, rows(different(wrong)))]
    of_these = sum(not example.right for example, *_ in doubtful)
    lines += ["", "### Least confident predictions", ""]
    lines += [f"{of_these} of these {len(doubtful)} are wrong.", ""]
    return [*lines, *table(header, rows(doubtful))]


def label_error_lines(errors: Sequence[LabelError], kind: Kind, unseen: str = "") -> list[str]:
    """List the probable label errors; `errors` begins with the most probable, `unseen` is as in `About`."""
    header: tuple[str, ...] = ("text", "label", "predicted", "where")
    rows: list[tuple] = [
        (kind.text(e.example), e.label, e.predicted, e.example.where) for e in errors[:ERRORS]
    ]
    if errors[0].probability is not None:
        header = (*header, "probability of the label")
        rows = [(*row, e.probability) for row, e in zip(rows, errors, strict=False)]
    note = (
        f"The labels that the model contradicts most clearly, {len(rows)} of {len(errors):,}: either the label or the "
        f"model is wrong. {unseen or 'They say little if the model was trained on these examples.'}"
    )
    return [note, "", *table(header, rows)]


def contradiction_lines(groups: Sequence[Sequence[Example]], kind: Kind) -> list[str]:
    if not groups:
        return []
    rows = [(kind.text(group[0]), labels_in(group, kind)) for group in groups[:ERRORS]]
    note = "1 text occurs" if len(groups) == 1 else f"{len(groups):,} texts occur"
    some = f", {ERRORS} of them here" if len(groups) > ERRORS else ""
    lines = ["", "### Contradictions", "", f"{note} with different labels{some}:", ""]
    return [*lines, *table(("text", "labels"), rows)]


def labels_in(group: Sequence[Example], kind: Kind) -> str:
    return "; ".join(f"{label(example, kind)} ({example.where})" for example in group)


def data_lines(directory: Path, parts: Mapping[str, Facts], longest: int) -> list[str]:
    header = ["", "examples", "median tokens", "99th percentile", f"longer than {longest}", "duplicates",
              "contradictions"]  # fmt: skip
    others = list(parts) if len(parts) > 1 else []
    rows = []
    for name, part in parts.items():
        tokens = (int(np.quantile(part.lengths, q)) for q in (0.5, 0.99))
        row = [name, part.examples, *tokens, f"{part.longer:.2%}", part.repeated, part.conflicting]
        rows.append(row + ["" if other == name else part.shared[other] for other in others])
    lines = table([*header, *(f"texts also in {name}" for name in others)], rows)
    if any(part.labels for part in parts.values()):
        lines += ["", picture("share of each class", plots.balance(directory / "balance.png", parts))]
    drawn = plots.lengths(directory / "lengths.png", parts, longest)
    return [*lines, "", picture("tokens per text", drawn)]
