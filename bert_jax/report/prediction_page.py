"""The report on a model's predictions for labelled examples: a Markdown page, with its pictures beside it."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

from bert_jax.core.files import write_atomically
from bert_jax.core.output import atomic_directory
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.example import Example
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.metrics.classification import precision_recall_f1
from bert_jax.metrics.intervals import RESAMPLES, bootstrap_intervals
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.calibration_fitting import expected_calibration_error
from bert_jax.predictions.kind import Kind, Outcomes
from bert_jax.predictions.learning_curve import LearningCurve
from bert_jax.predictions.report_data import LabelError, ReportData, ReportExample
from bert_jax.predictions.targets import Baseline
from bert_jax.report import plots
from bert_jax.report.confusions import ConfusionMatrix
from bert_jax.report.data_facts import DataFacts, collect_data_facts, find_contradictions, format_label
from bert_jax.report.evaluate_predictions import (
    PredictionEvalConfig,
    describe_prediction_scores,
    run_evaluation,
    score_outcomes,
)
from bert_jax.report.evaluation import Evaluation
from bert_jax.report.guaranteed_precision import MAX_LABELS, rows_of_all, rows_of_labels
from bert_jax.report.out_of_scope_detection import OutOfScopeComparison, draw_similarities, list_aurocs

MAX_ERRORS = 12  # the number of errors shown of each sort
# If a few classes had 1 to 3 examples, simulated 95 % intervals of f1_macro contained the true score in 44 to 88 %.
FEWEST_OF_CLASS = 4
# The names of all files that a run writes into its report.
REPORT_FILES = {"report.md"} | {
    f"{name}.png"
    for name in ("numbers", "confusion", "reliability", "coverage", "balance", "learning_curve", "scope", "curves")
}  # fmt: skip
MAX_CHARACTERS = 240  # the number of characters of a text that are shown


def evaluate_with_report(
    report, directory, eval_config: PredictionEvalConfig, command: str = ""
) -> Evaluation:
    """Evaluate a model, and write the report to the directory `report`."""
    with atomic_directory(Path(report)) as new:
        model = load(directory)
        given, compared = run_evaluation(model, eval_config)
        about = ReportContext(
            f"{directory} on {eval_config.data}", command, {"scored": given.examples}, out_of_scope=compared
        )
        write_report(new, given, model, about)
    return describe_prediction_scores(score_outcomes(given, compared), directory, eval_config.data)


@dataclass(frozen=True)
class ReportContext:
    """What a report says in addition to the predictions."""

    title: str
    command: str
    parts: Mapping[str, Sequence[Example]]  # all known examples by part, the scored part first
    curves: Path | None = None  # the picture of the training curves
    learning_curve: LearningCurve | None = None
    out_of_scope: OutOfScopeComparison | None = None  # out-of-scope texts, compared with the scored examples
    unseen: str = ""  # a sentence: the model was not trained on the scored examples; "" if unknown
    trained_length: int = 0  # the most tokens of a text that training read; 0 if unknown or all


def write_report(directory: Path, given: Outcomes, model: Encoder, about: ReportContext) -> None:
    view, longest = given.report_data, model.config.max_position_embeddings
    of_what = f"{given.kind.title} on {len(given.examples):,} examples"
    lines = [f"# {about.title}", "", f"{of_what}, {date.today()}.", ""]
    lines += [f"- {note}" for note in given.notes]
    few = sum(0 < true < FEWEST_OF_CLASS for _, _, true in view.counts.values())
    scores = interval_lines(given.score_sums, baseline=given.baseline, few=few)
    lines += ["", "## Scores", "", *scores, ""]
    if view.numbers:
        drawn = plots.plot_numbers(directory / "numbers.png", *view.numbers)
        lines += [image_link("predicted and true numbers", drawn), ""]
    if view.pairs:
        lines += [*class_lines(directory, given, view), ""]
    if view.examples:
        lines += ["## Trust", "", *trust_lines(directory, given, view), ""]
        lines += ["## Errors", "", *error_lines(view.examples, given.kind.targets.one_label), ""]
    if about.out_of_scope:
        lines += ["## Out of scope", "", *out_of_scope_lines(directory, about.out_of_scope), ""]
    if learning_curve := about.learning_curve:
        drawn = plots.draw_learning_curve(directory / "learning_curve.png", learning_curve)
        lines += [
            "## Would more labels help?",
            "",
            f"A probe of the frozen encoder: {learning_curve.describe()}.",
            "",
        ]
        lines += [image_link("scores by the number of labels", drawn), ""]
    if errors := given.label_errors:
        lines += ["## Probable label errors", "", *label_error_lines(errors, given.kind, about.unseen), ""]
    known = collect_data_facts(about.parts, model.tokenizer, longest, given.kind)
    lines += ["## Data", "", *data_lines(directory, known, longest)]
    if 0 < about.trained_length < longest:
        lines += [
            "",
            f"Training read at most {about.trained_length:,} tokens of a text (data.max_length); these predictions "
            f"read up to {longest:,}.",
        ]
    every = find_contradictions(
        (example for examples in about.parts.values() for example in examples), given.kind
    )
    lines += contradiction_lines(every, given.kind)
    if about.curves is not None and about.curves.exists():
        shutil.copyfile(about.curves, directory / "curves.png")
        lines += ["", "## Training", "", image_link("losses and scores by step", "curves.png")]
    lines += ["", "## Reproduce", "", f"    {about.command}", ""]
    write_atomically(directory / "report.md", "\n".join(lines))


def image_link(what: str, name: str) -> str:
    return f"![{what}]({name})"


def markdown_table(header: Sequence[str], rows) -> list[str]:
    rows = list(rows)
    marks = ["---" if isinstance(value, str) else "--:" for value in rows[0]]
    rows = [[format_cell(value) for value in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (list(header), marks, *rows)]


def format_cell(value) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else shorten(str(value)).replace("|", "\\|")


def shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 2] + " …"


def interval_lines(
    sums: ScoreSums, units: str = "examples", baseline: Baseline | None = None, few: int = 0
) -> list[str]:
    """Show the scores with their intervals and the baseline; `few` classes have fewer than FEWEST_OF_CLASS examples."""
    scores = bootstrap_intervals(sums)
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
        classes = f"{pluralize(few, 'class')} {'has' if few == 1 else 'have'}"
        note += (
            f" {classes} fewer than {FEWEST_OF_CLASS} examples, so the interval of {' and '.join(of_classes)} may be "
            "too narrow."
        )
    return [*markdown_table(header, rows), "", note]


def class_lines(directory: Path, given: Outcomes, view: ReportData) -> list[str]:
    occurring = {name: three for name, three in view.counts.items() if three[1] or three[2]}
    by_frequency = sorted(occurring.items(), key=lambda item: -item[1][2])
    rows = [(name, *precision_recall_f1(*three).values(), three[2], three[1]) for name, three in by_frequency]
    lines = markdown_table(("class", "f1", "precision", "recall", "true", "predicted"), rows) if rows else []
    if absent := len(view.counts) - len(occurring):
        lines += [
            "",
            f"Left out: {pluralize(absent, 'class')} that no example has and the model never predicted.",
        ]
    confusions = ConfusionMatrix.from_pairs(view.pairs, given.kind.labels)
    return [*lines, "", *confusion_lines(directory, confusions)]


def confusion_lines(directory: Path, confusions: ConfusionMatrix) -> list[str]:
    largest = confusions.largest
    if not largest:
        return ["No class is confused with another."]
    counts, true, predicted = confusions.matrix(plots.MAX_LABELS)
    drawn = plots.plot_confusion(directory / "confusion.png", counts, true, predicted)
    total = sum(count for *_, count in largest)
    rows = [(*confusion, f"{confusion[2] / total:.1%}") for confusion in largest[:MAX_ERRORS]]
    largest_ones = markdown_table(("true", "predicted", "count", "share of all confusions"), rows)
    return [image_link("confusion matrix", drawn), "", "### Largest confusions", "", *largest_ones]


def trust_lines(directory: Path, given: Outcomes, view: ReportData) -> list[str]:
    calibration, words = given.calibration, given.kind.presentation
    if not len(view.confidence):
        return [f"No {words.abstention_units} were predicted: there is no confidence to judge."]
    before, after = (
        expected_calibration_error(likely, view.right) for likely in (view.uncalibrated, view.calibrated)
    )
    if calibration.is_fitted:
        lines = [
            f"Expected calibration error of these {words.units}: {before:.4f} before calibration, {after:.4f} after."
        ]
        count = f"{calibration.examples:,} examples, each predicted by a model that was not trained on it"
        if calibration.keeps_probabilities:
            lines += [f"Probabilities stay as they are: no temperature fits better. Checked on {count}."]
        elif temperature := calibration.describe_temperature():
            lines += [f"{temperature.capitalize()}, fitted on {count}."]
        if not calibration.keeps_probabilities:
            lines += [f"On examples that the temperature was not fitted on: {calibration.describe_errors()}."]
    else:
        lines = [
            f"This model was not calibrated. Expected calibration error of the {words.units}: {before:.4f}."
        ]
    drawn = plots.plot_reliability(directory / "reliability.png", view, calibration.is_fitted)
    lines += ["", image_link("reliability diagram: accuracy by confidence", drawn), ""]
    drawn = plots.plot_coverage(directory / "coverage.png", view, words.abstention_units)
    lines += [image_link("accuracy by coverage", drawn)]
    return lines + precision_lines(given, view) if calibration.is_fitted else lines


def precision_lines(given: Outcomes, view: ReportData) -> list[str]:
    units = given.kind.presentation.abstention_units
    note = (
        f"`--min-precision` keeps the {units} that are probable enough for the guaranteed precision. The guarantee "
        "holds only for texts like those used for calibration: from the same sources, labelled by the same rules."
    )
    measured = "precision here", "95 % interval"
    header = ("guaranteed precision", "minimum probability", f"{units} kept here", *measured)
    lines = ["", note, "", *markdown_table(header, rows_of_all(given.calibration, view))]
    if rows := list(rows_of_labels(given.calibration, view)):
        note = "`--min-precision LABEL=P` keeps the predictions of a label that are probable enough for its precision. "
        note += "Each guarantee holds by itself."
        if len(given.calibration.by_label) > MAX_LABELS:
            note += (
                f" These are the {MAX_LABELS} most frequent of {len(given.calibration.by_label):,} labels."
            )
        columns = ("label", *header[:2], "predictions kept here", *measured, "recall here")
        lines += ["", note, "", *markdown_table(columns, rows)]
    return lines


def out_of_scope_lines(directory: Path, given: OutOfScopeComparison) -> list[str]:
    scores = given.scores
    lines = [
        f"Out-of-scope texts: {scores.out_of_scope:,}. In-distribution texts: {scores.known:,}, those that are scored "
        "above. The in-distribution p-value is the share of validation texts that are no more similar to the training "
        "texts than this text is."
        + " It is calibrated on the scored texts themselves, so false alarms are as frequent as requested; `evaluate "
        "--out-of-scope` measures them on other texts." * given.learnt,
        "",
        *markdown_table(
            ("area under the curve", "value"), [(name, value) for name, value in list_aurocs(scores).items()]
        ),
        "",
    ]
    rows = [(f"{row.p_value:g}", row.false_alarm_rate, row.detection_rate) for row in scores.rates]
    lines += markdown_table(
        (
            "out of scope if the p-value is below",
            "false alarms: scored texts below it",
            "detected: out-of-scope texts below it",
        ),
        rows,
    )
    return [
        *lines,
        "",
        image_link("similarity to the training texts", draw_similarities(directory / "scope.png", given)),
    ]


def error_lines(shown: Sequence[ReportExample], one_label: bool) -> list[str]:
    header = ("text", "true", "predicted", "probability", "where")

    def different(examples: Sequence[ReportExample]) -> list[list[ReportExample]]:
        """Group the examples that have equal texts, labels and predictions; return the first ERRORS groups."""
        groups = dict[tuple, list[ReportExample]]()
        for e in examples:
            groups.setdefault((e.text, e.true, e.predicted), []).append(e)
        return list(groups.values())[:MAX_ERRORS]

    def rows(groups: Sequence[Sequence[ReportExample]]):
        return [
            (e.text, e.true, e.predicted, e.probability, e.where + f" and {len(more):,} more" * bool(more))
            for e, *more in groups
        ]

    wrong = sorted((example for example in shown if not example.right), key=lambda e: -e.probability)
    doubtful = different(sorted(shown, key=lambda example: example.probability))
    lines = [
        f"{len(wrong):,} of {len(shown):,} predictions {are(len(wrong))} "
        f"{'wrong' if one_label else 'not entirely right'}."
    ]
    if wrong:
        lines += ["", "### Most confident errors", "", *markdown_table(header, rows(different(wrong)))]
    num_wrong = sum(not example.right for example, *_ in doubtful)
    lines += ["", "### Least confident predictions", ""]
    lines += [f"{num_wrong} of these {len(doubtful)} {are(num_wrong)} wrong.", ""]
    return [*lines, *markdown_table(header, rows(doubtful))]


def are(number: int) -> str:
    return "is" if number == 1 else "are"


def label_error_lines(errors: Sequence[LabelError], kind: Kind, unseen: str = "") -> list[str]:
    """List the probable label errors; `errors` begins with the most probable, `unseen` is as in `ReportContext`."""
    header: tuple[str, ...] = ("text", "label", "predicted", "where")
    text = kind.presentation.example_text
    rows: list[tuple] = [
        (text(e.example), e.label, e.predicted, e.example.where) for e in errors[:MAX_ERRORS]
    ]
    if errors[0].probability is not None:
        header = (*header, "probability of the label")
        rows = [(*row, e.probability) for row, e in zip(rows, errors, strict=False)]
    note = (
        f"The labels that the model contradicts most clearly, {len(rows)} of {len(errors):,}: either the label or the "
        f"model is wrong. {unseen or 'They say little if the model was trained on these examples.'}"
    )
    return [note, "", *markdown_table(header, rows)]


def contradiction_lines(groups: Sequence[Sequence[Example]], kind: Kind) -> list[str]:
    if not groups:
        return []
    text = kind.presentation.example_text
    rows = [(text(group[0]), list_labels(group, kind)) for group in groups[:MAX_ERRORS]]
    note = "1 text occurs" if len(groups) == 1 else f"{len(groups):,} texts occur"
    some = f", {MAX_ERRORS} of them here" if len(groups) > MAX_ERRORS else ""
    lines = ["", "### Contradictions", "", f"{note} with different labels{some}:", ""]
    return [*lines, *markdown_table(("text", "labels"), rows)]


def list_labels(group: Sequence[Example], kind: Kind) -> str:
    return "; ".join(f"{format_label(example, kind)} ({example.where})" for example in group)


def data_lines(directory: Path, parts: Mapping[str, DataFacts], longest: int) -> list[str]:
    header = ["", "examples", "median tokens", "99th percentile", f"longer than {longest}", "duplicates",
              "contradictions"]  # fmt: skip
    others = list(parts) if len(parts) > 1 else []
    rows = []
    for name, part in parts.items():
        tokens = (int(np.quantile(part.lengths, q)) for q in (0.5, 0.99))
        row = [name, part.examples, *tokens, f"{part.longer:.2%}", part.repeated, part.conflicting]
        rows.append(row + ["" if other == name else part.shared[other] for other in others])
    lines = markdown_table([*header, *(f"texts also in {name}" for name in others)], rows)
    if any(part.labels for part in parts.values()):
        lines += [
            "",
            image_link("share of each class", plots.plot_class_balance(directory / "balance.png", parts)),
        ]
    return lines
