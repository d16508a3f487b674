"""`labels`: training on a few labels, compared with scikit-learn, SetFit and transformers.

Examples are drawn from published data sets several times, the same number for each class. Every learner starts from the
same directory, is trained on the same examples, and is tested on the same test examples.

OUTPUT/SET-SIZE-DRAW/      the examples of a draw
OUTPUT/results.jsonl       a line for each learner and draw; existing results are not measured again
OUTPUT/labels.md           the table
"""

import csv
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.files import to_json, write_atomically
from bert_jax.data.examples.columns import AUTODETECT
from bert_jax.data.examples.example import labels_of
from bert_jax.data.examples.tagged_words import read_tags
from bert_jax.predictions.calibration_fitting import expected_calibration_error
from bert_jax.predictions.kind import KINDS, Outcomes
from bert_jax.text.line_reader import read_lines
from tests.bench import learners

TESTED = 1000  # test examples, at most
CLASSES = 10  # the most frequent classes of GoEmotions that are kept
TOLERANCE = 0.02  # a calibration error that is higher by at most this counts as equal
OURS = "default"

Row = tuple[tuple[str, ...], str]  # (text or pair of texts, label), or (words, tags)


def read_rows(table: Path) -> list[list[str]]:
    read = csv.reader(read_lines(str(table)), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [row for row in read if row]


def read_result_lines(results: Path) -> list[dict]:
    """Read the results so far, without a last line that is incomplete because a run was killed."""
    whole = results.read_text(encoding="utf-8").split("\n")[:-1] if results.exists() else []
    return [json.loads(line) for line in whole]


@dataclass(frozen=True)
class DataSet:
    task: str  # the config to train with
    read: Callable[[Path], tuple[list[Row], list[Row]]]  # directory -> (training set, test set)
    sizes: tuple[int, ...]  # examples per class; for tags, sentences in all


def sst2(data: Path) -> tuple[list[Row], list[Row]]:
    def read(name: str) -> list[Row]:
        return [((text.strip(),), label) for text, label in read_rows(data / "glue-sst2" / name)[1:]]

    return read("train.tsv"), read("dev.tsv")


def goemotions(data: Path) -> tuple[list[Row], list[Row]]:
    """Read the texts that have a single label, which is one of the most frequent ones."""
    names = [name.strip() for name in read_lines(str(data / "goemotions" / "labels.txt"))]
    train, test = (read_rows(data / "goemotions" / name) for name in ("train.tsv", "test.tsv"))
    counts = Counter(label for _, label, *_ in train if label.isdecimal())
    kept = [label for label, _ in counts.most_common(CLASSES)]

    def chosen(table) -> list[Row]:
        return [((text.strip(),), names[int(label)]) for text, label, *_ in table if label in kept]

    return chosen(train), chosen(test)


def mrpc(data: Path) -> tuple[list[Row], list[Row]]:
    def read(name: str) -> list[Row]:
        table = read_rows(data / "mrpc" / f"msr_paraphrase_{name}.txt")
        cells = ((row[0].lstrip("\ufeff"), row[3], row[4]) for row in table)
        return [
            ((first, second), "same" if label == "1" else "other")
            for label, first, second in cells
            if label.isdecimal()
        ]

    return read("train"), read("test")


def conll2003(data: Path) -> tuple[list[Row], list[Row]]:
    def read(name: str) -> list[Row]:
        examples = read_tags(str(data / "conll2003" / name), AUTODETECT)
        return [(tuple(example.text), " ".join(labels_of(example))) for example in examples]

    return read("eng.train"), read("eng.testb")


def table(folder: str, name: str = "") -> Callable[[Path], tuple[list[Row], list[Row]]]:
    """Return a reader of the two tables of a folder, whose names may begin with that of a set."""

    def read(path: Path) -> list[Row]:
        with open(path, encoding="utf-8", newline="") as file:
            return [((row["text"],), row["label"]) for row in csv.DictReader(file)]

    def read_both(data: Path) -> tuple[list[Row], list[Row]]:
        first = data / "few-labels" / folder / f"{name}train.csv"
        return read(first), read(first.with_name(f"{name}test.csv"))

    return read_both


SETS = {
    "sst2": DataSet("classify", sst2, (8, 16, 64, 256)),
    "goemotions": DataSet("classify", goemotions, (8, 16, 64, 256)),
    "snips": DataSet("classify", table("snips"), (2, 4, 8, 16, 64)),
    "atis": DataSet("classify", table("atis"), (8, 64)),
    "tweet-emotion": DataSet("classify", table("tweet-emotion"), (2, 4, 8, 16, 64)),
    "sci-cite": DataSet("classify", table("sci-cite"), (8, 64)),
    "products": DataSet("classify", table("uci-sentences", "amazon_cells-"), (2, 4, 8, 16, 64)),
    "films": DataSet("classify", table("uci-sentences", "imdb-"), (8, 64)),
    "restaurants": DataSet("classify", table("uci-sentences", "yelp-"), (8, 64)),
    "mrpc": DataSet("classify", mrpc, (8, 16, 64, 256)),
    "conll2003": DataSet("tag", conll2003, (8, 64, 512)),
}


@dataclass(frozen=True)
class Cell:
    name: str
    size: int
    draw: int

    def directory(self, output: Path) -> Path:
        return output / f"{self.name}-{self.size}-{self.draw}"

    @property
    def facts(self) -> dict:
        return {"set": self.name, "size": self.size, "draw": self.draw}


def measure_labels(
    data: str,
    init: str,
    output: str,
    sets: Sequence[str],
    names: Sequence[str],
    draws: int,
    sizes: Sequence[int] = (),
) -> str:
    """Let each learner learn from each draw that has no result yet, and return the table."""
    for name in sets:
        check_name(name, tuple(SETS), "data set")
    for name in names:
        check_name(name, tuple(learners.LEARNERS), "learner")
    directory = Path(output)
    results = directory / "results.jsonl"
    cells = [
        Cell(name, size, draw)
        for draw, name in product(range(draws), sets or SETS)
        for size in SETS[name].sizes
        if not sizes or size in sizes
    ]
    for cell, name in product(cells, names or learners.LEARNERS):
        learner = learners.LEARNERS[name]
        facts = cell.facts | {"learner": name, "model": init}
        if any(facts.items() <= line.items() for line in read_result_lines(results)):
            continue
        if cell.size > learner.most or SETS[cell.name].task not in learner.tasks:
            continue
        folder = draw_directory(cell, Path(data), directory)
        start = time.perf_counter()
        measured = scores(learner.learn(read_task(cell, folder), init))
        line = facts | measured | {"seconds": round(time.perf_counter() - start, 1)}
        lines = [*read_result_lines(results), line]
        write_atomically(results, "".join(to_json(line) + "\n" for line in lines))
        print(", ".join(f"{key} {value}" for key, value in line.items()), flush=True)
    lines = [line for line in read_result_lines(results) if line.get("model") == init]
    if not lines:
        raise BertJaxError("nothing was measured: no learner takes these data sets")
    text = results_table(lines)
    write_atomically(directory / "labels.md", text)
    return text


def draw_directory(cell: Cell, data: Path, output: Path) -> Path:
    """Return the directory of a draw; if it is missing, write its examples to files as a user would have them."""
    directory = cell.directory(output)
    if not directory.exists():
        pool, test_pool = SETS[cell.name].read(data)
        random = np.random.default_rng([cell.size, cell.draw])
        train = draw_examples(pool, cell, random)
        test = [test_pool[i] for i in random.permutation(len(test_pool))[:TESTED]]
        partial = directory.with_name(directory.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, examples in (("train", train), ("test", test)):
            write_examples(partial / name, examples, SETS[cell.name].task)
        partial.rename(directory)
    return directory


def draw_examples(pool: Sequence[Row], cell: Cell, random: np.random.Generator) -> list[Row]:
    """Draw at most `cell.size` examples of each class, in random order; of tagged sentences, `cell.size` in all."""
    shuffled = [pool[i] for i in random.permutation(len(pool))]
    if SETS[cell.name].task == "tag":
        return shuffled[: cell.size]
    taken, chosen = Counter[str](), []
    for row in shuffled:
        if taken[row[1]] < cell.size:
            taken[row[1]] += 1
            chosen.append(row)
    return chosen


def write_examples(path: Path, examples: Sequence[Row], task: str) -> None:
    if task == "tag":
        sentences = (
            "".join(f"{w} {t}\n" for w, t in zip(words, tags.split(), strict=True))
            for words, tags in examples
        )
        path.with_suffix(".txt").write_text("\n".join(sentences), encoding="utf-8")
        return
    with open(path.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*("text", "text2")[: len(examples[0][0])], "label"])
        writer.writerows([*texts, label] for texts, label in examples)


def read_task(cell: Cell, directory: Path) -> learners.FewShotTask:
    task = SETS[cell.name].task
    train, test = (
        str(directory / f"{name}{'.txt' if task == 'tag' else '.csv'}") for name in ("train", "test")
    )
    kind = KINDS["tags" if task == "tag" else "classes"]
    train_examples, test_examples = kind.reader.read(train), kind.reader.read(test)
    with_labels = kind.from_examples([*train_examples, *test_examples])
    return learners.FewShotTask(task, train, with_labels, train_examples, test_examples, directory)


def scores(outcomes: Outcomes) -> dict[str, float]:
    view = outcomes.report_data
    return {
        "score": round(outcomes.score_sums.scores[outcomes.kind.best_metric], 4),
        "calibration_error": round(expected_calibration_error(view.calibrated, view.right), 4),
    }


def group_results(lines: Sequence[dict]) -> Iterator[tuple[str, int, dict[str, dict[int, dict]]]]:
    """Yield (data set, size, {learner: {draw: line}}) for each data set and size with results."""
    for name in SETS:
        for size in SETS[name].sizes:
            by_learner: dict[str, dict[int, dict]] = {}
            for line in lines:
                if (line["set"], line["size"]) == (name, size):
                    by_learner.setdefault(line["learner"], {})[line["draw"]] = line
            if by_learner:
                yield name, size, by_learner


def results_table(lines: Sequence[dict]) -> str:
    """Format the means over the draws.

    If several draws have results of all learners, also compare the default with the best learner of another library.
    """
    names = [name for name in learners.LEARNERS if any(line["learner"] == name for line in lines)]
    text = [
        "| data set | labels | draws | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    comparisons = []
    for name, size, by_learner in group_results(lines):
        means = [mean_scores(by_learner.get(learner, {})) for learner in names]
        text.append(f"| {name} | {size} | {max(map(len, by_learner.values()))} | {' | '.join(means)} |")
        shared = shared_draws(by_learner)
        if OURS in by_learner and by_learner.keys() - set(learners.OURS) and len(shared[OURS]) > 1:
            comparisons.append((name, size, *compare_default(shared)))
    comparison_lines = [
        f"{name} {size}: {difference:+.3f} (standard error {spread:.3f}) compared with {best}; calibration error "
        f"{calibration:+.3f} compared with the lowest"
        for name, size, best, difference, spread, calibration in comparisons
    ]
    within = [sum(d >= -n * s for *_, d, s, _ in comparisons) for n in (1, 2)]
    calibrated = sum(c <= TOLERANCE for *_, c in comparisons)
    text += [
        "",
        "Score, and the expected calibration error in brackets; means over the draws.",
        "",
        *comparison_lines,
    ]
    if comparisons:
        text.append(
            "\nThe default is at most one standard error below the best other library "
            f"in {within[0]} of {len(comparisons)} comparisons, at most two in {within[1]}; "
            f"its calibration error is the lowest or within {TOLERANCE} in {calibrated}."
        )
    return "\n".join(text) + "\n"


def mean_scores(runs: dict[int, dict]) -> str:
    if not runs:
        return ""
    score, error = (np.mean([run[key] for run in runs.values()]) for key in ("score", "calibration_error"))
    return f"{score:.3f} ({error:.3f})"


def shared_draws(by_learner: dict[str, dict[int, dict]]) -> dict[str, dict[int, dict]]:
    """Keep only the draws for which every learner has a result."""
    shared = set.intersection(*map(set, by_learner.values()))
    return {name: {draw: runs[draw] for draw in sorted(shared)} for name, runs in by_learner.items()}


def compare_default(by_learner: dict[str, dict[int, dict]]) -> tuple[str, float, float, float]:
    """Compare the default with the learners of other libraries, on draws that all of them have.

    Return (best of these learners, mean paired difference of our score to its score, standard error of this difference,
    our calibration error minus the lowest of theirs).
    """
    others = {name: runs for name, runs in by_learner.items() if name not in learners.OURS}
    best = max(others, key=lambda name: np.mean([run["score"] for run in others[name].values()]))
    differences = np.array([by_learner[OURS][n]["score"] - run["score"] for n, run in others[best].items()])
    spread = differences.std(ddof=1) / len(differences) ** 0.5
    errors = {
        name: np.mean([run["calibration_error"] for run in runs.values()])
        for name, runs in by_learner.items()
    }
    lowest = min(errors[name] for name in others)
    return best, float(differences.mean()), float(spread), float(errors[OURS] - lowest)
