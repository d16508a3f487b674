"""`bert_jax.train`: a whole run from Python, and its results."""

import shutil
import signal
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import jax
from ml_collections import ConfigDict

from bert_jax import tasks
from bert_jax.core import hashes
from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.compilation_cache import avoid_missing_tpu, enable_compilation_cache
from bert_jax.core.config_files import run_config_file
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import explain_os_errors, temporary_sibling
from bert_jax.core.paths import require_path
from bert_jax.core.terminal import print_line
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.runs.run import run_from_config
from bert_jax.tasks import TASKS
from bert_jax.training.log import format_metrics, read_metrics
from bert_jax.training.stop_signal import RunStopped
from bert_jax.training.workdir import Workdir

Config: TypeAlias = str | PathLike[str] | Mapping[str, Any] | ConfigDict
ALIKE = 0.8  # lowest similarity of a misspelt argument and the right one


class Run:
    """A run of `train` or `finetune`.

    - `model`: the trained model, as `bert_jax.load` opens it
    - `metrics`: the measurements, a dict for each line of the log: `pandas.DataFrame(run.metrics)`
    - `scores`: the model's scores: on the validation set, or out of fold if the run was cross-validated
    - `report`: the path of the report, None if there is none
    - `workdir`: the directory of the run; a temporary one is removed with this object, or when Python exits
    """

    def __init__(self, workdir: Path, scores: dict[str, float] | None):
        self.workdir, self.scores, self.finished = workdir, scores or {}, scores is not None
        page = Workdir(workdir).page
        self.report = page if page.exists() else None

    def __repr__(self) -> str:
        state = "finished" if self.finished else "stopped before its end"
        facts = [format_metrics(self.scores)] if self.scores else []
        facts += [f"report in {self.report}"] if self.report else []
        return f"<Run: {', '.join([state, *facts])}; directory {self.workdir}>"

    @cached_property
    def model(self) -> Encoder:
        if not self.finished:
            raise BertJaxError(
                "the run was stopped before its end, so it has no model; repeat the call with the same workdir to "
                "resume it"
            )
        return load(Workdir(self.workdir).model)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The measurements; for a sweep those of all its runs, with the name of the run in the column `run`."""
        directory = Workdir(self.workdir)
        if directory.metrics.exists():
            return flatten_metrics(directory.metrics)
        several = sorted(self.workdir.glob(f"*/seed=*/{directory.metrics.name}"))
        names = [str(path.parent.relative_to(self.workdir)) for path in several]
        return [
            {"run": name, **row}
            for name, path in zip(names, several, strict=True)
            for row in flatten_metrics(path)
        ]


def flatten_metrics(metrics: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl, with the timings as columns like the others."""
    return [line | line.pop("time", {}) for line in read_metrics(metrics)]


def train(config: Config | None = None, *, workdir: str | PathLike[str] | None = None, **keys: Any) -> Run:
    """Train as `bert-jax train` does: the same loop, the same directory, the same report.

    `config` is the name of a config, a config file ("configs/classify.py:mrpc"), a dict or a ConfigDict. `keys` change
    its keys, as nested dicts or as names with dots:

    >>> run = bert_jax.train("classify", init="model", data={"train": "train.csv", "folds": 0}, epochs=1, report=False)
    >>> run.model.labels
    ('bad', 'good')

    Without a `workdir` the run has a temporary directory, which lives as long as the `Run`; an existing run in
    `workdir` is resumed. Ctrl-C stops the run after the current step, with a checkpoint. SIGTERM and SIGHUP do so, too,
    and end the program, with the exit codes 143 and 129.
    """
    given = [] if config is None else [repr(config) if isinstance(config, str) else "config"]
    check_arguments("train", ("config", "workdir"), keys)
    return start_run(run_values(config, keys), workdir, format_call("train", given, keys))


def check_arguments(function: str, arguments: Sequence[str], keys: Mapping) -> None:
    """Refuse a key that is a misspelt argument of the function; the config checks all other keys."""
    for name in keys:
        close = get_close_matches(str(name)[:80], arguments, n=1, cutoff=ALIKE)
        if close and not any(
            name in {field.name for field in fields(TASKS[task].Config)} for task in TASKS.names()
        ):
            raise BertJaxError(f'{function} has no argument {name}; did you mean "{close[0]}"?')


def start_run(values: dict, workdir: str | PathLike[str] | None, command: str) -> Run:
    """Run a complete config, whose `init` may be a loaded model; `command` is what the report shows as its command."""
    avoid_missing_tpu()
    enable_compilation_cache()
    if workdir is None and jax.process_count() > 1:
        raise BertJaxError("a run of several processes needs a workdir that all of them can access")
    path = Path(tempfile.mkdtemp(prefix="bert-jax-")) if workdir is None else require_path(workdir, "workdir")
    told: signal.Signals | None = None
    try:
        if isinstance(model := values.get("init"), Encoder):
            values = values | {"init": str(save_init_model(model, path))}
        with use_python_spelling():
            scores = run_from_config(values, [], str(path), command)
    except RunStopped as stopped:
        scores, told = None, stopped.signal
    except BaseException:
        if workdir is None:
            shutil.rmtree(path, ignore_errors=True)
        raise
    done = Run(path, scores)
    if workdir is None:
        if done.finished:
            print_line(
                f"{path} is temporary; run.model.save(DIR) keeps the model, and workdir=DIR the whole run"
            )
        weakref.finalize(done, shutil.rmtree, path, ignore_errors=True)
    if told not in (None, signal.SIGINT):
        raise SystemExit(128 + told)
    return done


def save_init_model(model: Encoder, workdir: Path) -> Path:
    """Save the loaded model that a run starts from, and return its directory; refuse one that holds another model."""
    directory = workdir / "init"
    if not directory.is_dir():
        model.save(directory)
        return directory
    with explain_os_errors(directory), temporary_sibling(directory, is_directory=True) as scratch:
        model.save(scratch / "init")
        if hashes.read_hashes(scratch / "init") != hashes.read_hashes(directory):
            raise BertJaxError(f"{directory} holds another model; name another workdir")
    return directory


def config_values(config: Config | None) -> dict:
    """Return the values of a config of any of the types that `train` takes."""
    if config is None:
        return {}
    if isinstance(config, str | PathLike):
        return run_config_file(fspath(config))
    values = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(values, Mapping):
        raise BertJaxError(f"config must be a name, a file or a dict, not {config!r:.60}")
    return dict(values)


def run_values(config: Config | None, keys: Mapping) -> dict:
    start = {name: keys[name] for name in tasks.START_KEYS if name in keys}
    if "init" in start:
        start["init"] = str(start["init"])  # it may be a loaded model, which has no directory yet
    return merge_keys(tasks.choose_values(config_values(config) | start), keys)


def merge_keys(values: Mapping, keys: Mapping) -> dict:
    """Return the values of a config, changed by keys, which may be nested dicts or names with dots.

    >>> merge_keys({"data": {"batch_size": 8, "batching": "packed"}}, {"data": {"batch_size": 16}, "log.every": 5})
    {'data': {'batch_size': 16, 'batching': 'packed'}, 'log': {'every': 5}}
    """
    both = dict(values)
    for name, value in keys.items():
        first, _, rest = str(name).partition(".")
        value = fspath(value) if isinstance(value, PathLike) else value
        value = {rest: value} if rest else value
        if isinstance(value, Mapping):
            section = both.get(first, {})
            value = merge_keys(section if isinstance(section, Mapping) else {}, value)
        both[first] = value
    return both


def format_call(name: str, given: Sequence[str], keys: Mapping) -> str:
    """Return a call as Python code, for reports; `given` are the arguments before the keys.

    >>> format_call("train", ["'classify'"], {"epochs": 3, "data.batch_size": 8})
    "bert_jax.train('classify', epochs=3, **{'data.batch_size': 8})"
    """
    dotted = {key: value for key, value in keys.items() if not key.isidentifier()}
    settings = [f"{key}={value!r}" for key, value in keys.items() if key not in dotted]
    return f"bert_jax.{name}({', '.join([*given, *settings, *([f'**{dotted}'] if dotted else [])])})"
