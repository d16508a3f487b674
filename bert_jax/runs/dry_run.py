"""`bert-jax train --dry-run`: what a run would do, from its config, its data and the shapes of its state.

The data are read and arranged in steps as in the run itself. Nothing is compiled, and the run is not started.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import jax
from jax.sharding import Mesh

from bert_jax import tasks
from bert_jax.core import memory
from bert_jax.core.config_files import run_config_file
from bert_jax.core.output import refuse_unknown_files
from bert_jax.core.terminal import pluralize, wrap_for_terminal
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import document_key
from bert_jax.finetuning.embed_config import EmbedConfig
from bert_jax.finetuning.finetune_config import FinetuneConfig, Method
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.finetuning.label_warnings import label_warnings
from bert_jax.finetuning.rerank_config import RerankConfig
from bert_jax.report.prediction_page import REPORT_FILES as REPORTED
from bert_jax.runs import sweep
from bert_jax.runs.choose_method import METHOD_NAMES, candidate_methods, needs_one_fold
from bert_jax.runs.run import restore_method
from bert_jax.tasks.pretrain import Corpora
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.log import read_metrics
from bert_jax.training.memory_estimate import MemoryEstimate, estimate_memory
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import check_batch, describe_devices, make_mesh
from bert_jax.training.state import TrainState, abstract_state
from bert_jax.training.task import BatchSource, Task
from bert_jax.training.workdir import Workdir

MOST_LABELS = 8  # labels shown with their counts
INDENT = 12  # width of the column of names, in characters

Facts = Iterator[tuple[str, str]]  # (name, description)


def print_dry_run(spec: str, overrides: Sequence[str], path: str) -> None:
    """Print what the run would do; raise the error with which it would refuse to start."""
    values, directory = run_config_file(spec), Workdir(path)
    module, config = tasks.read_config(values, overrides)
    if isinstance(config, FinetuneConfig | RerankConfig) and config.report:
        refuse_unknown_files(directory.report, REPORTED)
    if config.num_seeds > 1 or config.sweep:
        runs = sweep.plan_runs(values, overrides, config, directory.path)
        settings = "; ".join(dict.fromkeys(run.setting for run in runs))
        print_facts(
            [("runs", f"{len(runs):,}, {config.num_seeds:,} of each setting: {settings}; the first of them:")]
        )
        config, directory = runs[0].config, Workdir(runs[0].path)
    asked, has_teacher = config, isinstance(config, EmbedConfig) and bool(config.loss.teacher)
    task, data, config = module.open(config, taught=False) if has_teacher else module.open(config)
    mesh = make_mesh(config.mesh)
    check_batch(data.rows_per_step, mesh, config.mesh.gradient_accumulation_steps)
    abstract = abstract_state(task, config, mesh)
    needed = estimate_memory(task, data, config, mesh, abstract)
    print_facts(data_facts(data))
    print_facts(label_facts(task))
    print_facts(("", notice) for notice in label_warnings(task, config))
    print_facts(step_facts(data, config))
    print_facts(fold_facts(task, config, asked, directory))
    print_facts(model_facts(abstract, config, mesh))
    print_facts(memory_facts(needed))
    print_facts(directory_facts(directory, config))
    needed.require_fit()
    # With a teacher, the data lack its vectors, which take long to compute, so a directory cannot be compared.
    if not has_teacher:
        restore_method((task, data, config), values, overrides, directory)
    print_facts([("", "nothing was compiled or written; leave --dry-run out to start the run")])


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    for name, words in facts:
        print(wrap_for_terminal(f"{name:<{INDENT}}{words}", sys.stdout, INDENT), flush=True)


def data_facts(data: BatchSource) -> Facts:
    if isinstance(data, Corpora):
        for corpus in data.stream.corpora:
            train, validation = (
                f"{part['documents']:,} documents ({part['tokens']:,} tokens)"
                for part in (corpus.manifest["counts"]["train"], corpus.manifest["counts"]["validation"])
            )
            yield "corpus", f"{corpus.name}: {train} to train on, {validation} for validation"
    elif isinstance(data, Epochs):
        count, longest = len(data.train), max(map(len, data.train))
        truncated = sum(piece.encoding.dropped > 0 for piece in data.train)
        yield (
            "data",
            f"{pluralize(count, data.noun)} to train on, {len(data.held):,} for validation during the run; "
            f"{truncated:,} ({truncated / count:.1%}) of those to train on are truncated, the longest has {longest:,} "
            "tokens",
        )


def label_facts(task: Task) -> Facts:
    if isinstance(task, FinetuneTask) and task.finish_inputs:
        examples = task.finish_inputs.train
        yield document_facts(examples)
        counts = task.kind.count_labels(examples)
        shown = [f"{label} {count:,}" for label, count in counts.most_common(MOST_LABELS)]
        if counts:
            yield "labels", f"{len(counts):,}: {', '.join(shown)}{', ...' * (len(counts) > MOST_LABELS)}"


def document_facts(examples: Sequence[Example]) -> tuple[str, str]:
    """Return a fact: the number of different documents among the examples, or of texts if they name no documents.

    >>> document_facts([Example("a", "x", "row 1"), Example("b", "x", "row 2"), Example("a", "x", "row 3")])
    ('texts', '2 different ones among 3 examples')
    """
    documents = len({document_key(example) for example in examples})
    name = "documents" if any(example.document for example in examples) else "texts"
    return name, f"{documents:,} different ones among {pluralize(len(examples), 'example')}"


def step_facts(data: BatchSource, config: RunConfig) -> Facts:
    """Yield the examples, rows and tokens of a step, the number of steps, and how often the data are seen."""
    first = max(config.first_step, 0)
    if config.steps <= first:
        is_probe = isinstance(config, FinetuneConfig) and config.method == "linear_probe"
        what = "the head is computed by a regression, the encoder stays as it is"
        yield "steps", f"none: {what if is_probe else 'the run measures and saves its initial model'}"
        return
    lengths = Counter(data.row_length(step) for step in range(first, config.steps))
    tokens = float(
        data.rows_per_step * sum(length * count for length, count in lengths.items())
    )  # of all steps
    step = f"{data.rows_per_step:,} rows of {' or '.join(f'{length:,}' for length in sorted(lengths))} tokens"
    seen, padding = "", ", padding counted"
    if isinstance(data, Epochs):
        examples = data.chosen.shape[1]
        step = f"{pluralize(examples, data.noun)} in {step}"
        tokens *= 1 - data.padding()
        padding = ", padding not counted"
        seen = f", which are {config.steps * examples / len(data.train):,.2f} epochs"
    elif isinstance(data, Corpora):
        corpus = sum(corpus.manifest["counts"]["train"]["tokens"] for corpus in data.stream.corpora)
        seen = f", which are {tokens / corpus:,.1f} passes over the corpora at most"
    yield "step", f"{step}; {tokens / (config.steps - first):,.0f} tokens on average{padding}"
    measured = not isinstance(data, Epochs) or data.held
    validation = f"a validation every {config.log.evaluate_every:,}, " if measured else ""
    every = f"{validation}a checkpoint every {config.checkpoints.every:,}"
    yield "steps", f"{config.steps - first:,}{seen}; {every}"


def fold_facts(task: Task, config: RunConfig, asked: RunConfig, directory: Workdir) -> Facts:
    """Describe the folds that predict the training examples, or the one fold that chooses the method, if any."""
    if not isinstance(config, FinetuneConfig) or not isinstance(task, FinetuneTask) or not task.finish_inputs:
        return
    examples = len(task.finish_inputs.train)
    if config.cross_validates:
        yield "folds", describe_folds(config.data.folds, candidate_methods(config, task, examples))
    elif isinstance(asked, FinetuneConfig) and needs_one_fold(asked, task) and not directory.run.exists():
        yield "folds", describe_folds(1, candidate_methods(config, task, examples, whole=False))


def describe_folds(count: int, compared: Sequence[Method]) -> str:
    """Describe the methods whose models predict `count` folds.

    >>> describe_folds(5, ["linear_probe"])
    '5, predicted by a linear probe on the frozen encoder'
    >>> describe_folds(1, ["contrastive", "finetune"])
    '1, predicted by contrastive training and a linear probe; fine-tuning'
    """
    return f"{count}, predicted by {'; '.join(METHOD_NAMES[method] for method in compared)}"


def model_facts(abstract: TrainState, config: RunConfig, mesh: Mesh) -> Facts:
    count = sum(leaf.size for leaf in jax.tree.leaves(abstract.params))
    start = (
        f"starts from {config.init}"
        if config.init and not config.from_scratch
        else "starts from initial values"
    )
    yield "model", f"{count:,} parameters, {start}, on {describe_devices(mesh)}"


def memory_facts(needed: MemoryEstimate) -> Facts:
    free = memory.free_bytes(needed.device)
    parts = (needed.total_bytes, needed.state * needed.devices, needed.activations * needed.devices)
    total, state, activations = map(format_bytes, parts)
    beside = "" if free is None else f"; {format_bytes(free)} are free"
    yield (
        "memory",
        f"about {total}: {state} for parameters, gradients and optimizer, {activations} for activations{beside}",
    )


def format_bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def directory_facts(directory: Workdir, config: RunConfig) -> Facts:
    timed = [
        line["time"]["hours_left"]
        for line in read_metrics(directory.metrics)
        if "hours_left" in line.get("time", {})
    ]
    time = "unknown until the run has taken some steps; its log then shows it"
    if config.steps <= max(config.first_step, 0):
        time = "not estimated, because no step is taken"
    if not directory.run.exists():
        state = "a new run"
    elif not (steps := Checkpoints(directory.checkpoints, config.checkpoints).steps()):
        state = "a run without a checkpoint, which starts over"
    elif steps[-1] >= config.steps:
        state, time = f"a run that has finished, at step {steps[-1]:,}", "none"
    else:
        state = f"a run that is resumed at step {steps[-1]:,}"
        if timed:
            time = f"{timed[-1] * 60:,.0f} min were left when the run last measured its speed"
    yield "time", time
    yield "directory", f"{directory.path}: {state}"
