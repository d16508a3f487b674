"""The directory of a run.

run.json        version, the config it started with, the identity of its data, the layouts of its models, its own hash
tokenizer/      the tokenizer of its data
folds/          runs that each leave out a part of the examples, see finetuning/cross_validation.py
checkpoints/    the state of the run, see checkpoint.py
metrics.jsonl   the metrics; events.* holds the same for TensorBoard; curves.png is a plot of them
model/          the result, a Hugging Face directory; further models of the task are in model/NAME/
report/         the report, of tasks that write one
finished.json   what the result was made from, once it is complete
"""

import dataclasses
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from bert_jax.core.config import build_config
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_atomically
from bert_jax.core.hashes import check_version, is_inside_directory, is_sealed, seal
from bert_jax.core.output import explain_os_errors, lock, refuse_replacing
from bert_jax.core.terminal import print_line
from bert_jax.core.typed_json import coerce_json
from bert_jax.data.batch_source import BatchSource
from bert_jax.hub import model_directory as hub
from bert_jax.hub.adapter_targets import AdapterConfig
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.hub.sparse_encoder import SparseSettings
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.training.run_config import RunConfig

# Keys that may change when a run is resumed: they decide where and how it is computed and shown, not what it learns.
# The paths of the corpora may change; their content must be the same and is checked.
RESUMABLE_KEYS = re.compile(
    r"^(mesh|log|checkpoints)\."
    r"|^(max_nonfinite_steps|minutes|report|num_seeds|sweep|data\.(corpora|out_of_scope)|model\.(attention|remat|unroll))$"
)
SCHEDULE_KEYS = ("steps", "epochs")  # they may be raised when a run is resumed
SWEEP_TABLE = "sweep.md"  # the results of a sweep, whose runs have directories in its own
RESTORE_REMEDY = "restore run.json from a copy"
VERSION = 2  # of all files in the directory


class LayoutJson(TypedDict):
    """A layout as JSON, see `layout_to_json`."""

    heads: list[str]
    labels: list[str]
    pooler: bool
    hf_config: dict[str, Any]
    family: str
    config: dict[str, Any]
    embedder: NotRequired[dict[str, Any]]
    sparse: NotRequired[dict[str, Any]]
    multi_vector: NotRequired[dict[str, Any]]


class RunJson(TypedDict):
    """The content of run.json."""

    version: int
    config: dict[str, Any]
    data: dict[str, Any]
    layout: LayoutJson
    layouts: NotRequired[dict[str, LayoutJson]]
    self: str


class Workdir:
    def __init__(self, path):
        self.path = Path(path)
        self.run, self.tokenizer = self.path / "run.json", self.path / "tokenizer"
        self.checkpoints, self.metrics = self.path / "checkpoints", self.path / "metrics.jsonl"
        self.folds = self.path / "folds"
        self.curves, self.model, self.profile, self.report, self.finished = (
            self.path / name for name in ("curves.png", "model", "profile", "report", "finished.json")
        )
        self.page = self.report / "report.md"
        self._lock = None

    def claim(self) -> None:
        """Create the directory, and lock it against a second run on this machine."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "a")  # noqa: SIM115 - held until close()
        except OSError as error:
            raise BertJaxError(
                f"--workdir {self.path} cannot be written to ({error.strerror}); name one that can"
            ) from error
        if lock(self._lock.fileno()) is False:
            raise BertJaxError(f"another run is writing to {self.path}; stop it or name another --workdir")
        if (self.path / SWEEP_TABLE).exists():
            raise BertJaxError(f"{self.path} holds a sweep, not a single run; name another --workdir")
        self.refuse_replacing(self.model, hub.WRITTEN_FILES)

    def refuse_replacing(self, part: Path, names: Collection[str]) -> None:
        """Raise now, not after days, if a part of the result would replace what no run has written here."""
        is_begun = self.run.exists() or self.folds.exists() or (self.path / SWEEP_TABLE).exists()
        with explain_os_errors(part):
            refuse_replacing(part, names if is_begun else ())

    def close(self) -> None:
        if self._lock:
            self._lock.close()

    def record_or_check(self, config: RunConfig, data: BatchSource, layouts: Mapping[str, Layout]) -> None:
        """Write run.json and the tokenizer, or more steps of the same run; refuse a directory of a different run."""
        settings = recorded_settings(config)
        if not self.run.exists():
            described = {name: layout_to_json(layout) for name, layout in layouts.items()}
            content: dict[str, Any] = {"version": VERSION, "config": settings, "data": data.identity()}
            content |= {"layout": described.pop("")} | ({"layouts": described} if described else {})
            data.tokenizer.save(self.tokenizer)
        else:
            started, now = self.check_run(config, data), config.steps
            if started >= now:
                return
            print_line(
                f"steps raised from {started:,} to {now:,}; from here on the schedule is that of {now:,}"
            )
            content = self.read_run()
            del content["self"]
            content["config"] |= {key: settings[key] for key in SCHEDULE_KEYS if key in settings}
            self.finished.unlink(missing_ok=True)
        write_atomically(self.run, json.dumps(seal(round_trip_json(content)), indent=1) + "\n")

    def check_run(self, config: RunConfig, data: BatchSource) -> int:
        """Return the number of steps with which the run was started, which may be raised, and the epochs with it.
        Refuse a directory that belongs to a different run; write nothing."""
        recorded = self.read_run()
        started, settings = recorded["config"], round_trip_json(recorded_settings(config))
        if started["steps"] < config.steps:
            started = started | {key: settings[key] for key in SCHEDULE_KEYS if key in settings}
        self.refuse_differences(list_differences(started, settings), "settings")
        self.refuse_differences(list_differences(recorded["data"], data.identity()), "data")
        return recorded["config"]["steps"]

    def raises_steps(self, config: RunConfig) -> bool:
        """Whether the config goes on with the run for more steps than it was started with."""
        return self.run.exists() and self.read_run()["config"]["steps"] < config.steps

    def refuse_differences(self, differing: list[str], what: str) -> None:
        if differing:
            more = f" and {len(differing) - 6} more" if len(differing) > 6 else ""
            raise BertJaxError(
                f"{self.path} was started with other {what}: {'; '.join(differing[:6])}{more}; "
                "put them back, or name another --workdir"
            )

    def layouts(self) -> dict[str, Layout]:
        """The layouts of the models that the run produces, keyed as in `Task.layouts`."""
        content = self.read_run()
        described = {"": content["layout"], **content.get("layouts", {})}
        if outside := [name for name in described if name and not is_inside_directory(name)]:
            raise BertJaxError(
                f"{self.run} is damaged: it names a model {outside[0]!r:.60}, which cannot be the name of a folder; "
                f"{RESTORE_REMEDY}"
            )
        try:
            return {name: layout_from_json(values) for name, values in described.items()}
        except BertJaxError as error:
            raise BertJaxError(f"{self.run}: {error}; {RESTORE_REMEDY}") from None

    def read_run(self) -> dict:
        try:
            content = read_json(self.run, remedy=RESTORE_REMEDY)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BertJaxError(f"{self.path} is not a run directory (it has no run.json)") from error
        check_version(
            content, VERSION, self.run, "start the run anew, `bert-jax train` with another --workdir"
        )
        if not is_sealed(content):
            raise BertJaxError(f"{self.run} is damaged: its hash differs; {RESTORE_REMEDY}")
        return read_json(self.run, RunJson, remedy=RESTORE_REMEDY)


def layout_to_json(layout: Layout) -> dict:
    values = {name: getattr(layout, name) for name in ("heads", "labels", "pooler", "hf_config")}
    values |= {"family": layout.family.model_type, "config": dataclasses.asdict(layout.config)}
    vector_settings = {
        "embedder": layout.embedder,
        "sparse": layout.sparse,
        "multi_vector": layout.multi_vector,
    }
    return values | {
        name: dataclasses.asdict(settings) for name, settings in vector_settings.items() if settings
    }


def layout_from_json(values: dict) -> Layout:
    """The inverse of `layout_to_json`."""
    config = build_config(EncoderConfig, values["config"])
    family = FAMILIES.look_up_from_file(values["family"])
    heads, labels = tuple(values["heads"]), tuple(values["labels"])
    layout = Layout(config, family, heads, labels, values["pooler"], values["hf_config"])
    if "embedder" in values:
        return layout.embedding_with(EmbedderSettings.from_dict(values["embedder"]))
    if "sparse" in values:
        return layout.embedding_with(SparseSettings(**values["sparse"]))
    if "multi_vector" in values:
        return layout.embedding_with(MultiVectorSettings.from_dict(values["multi_vector"]))
    return layout


def recorded_settings(config: RunConfig) -> dict[str, Any]:
    """Return the keys of run.json. Keys of what a run does not use are left out, as versions before them had none."""
    keys = dict(flatten_config(config))
    if keys.get("label_descriptions") == "auto":
        del keys["label_descriptions"]
    if config.adapter.rank:  # no checkpoint has the frozen parameters
        return keys | {"init_fingerprint": hub.model_fingerprint(config.init)}
    return {key: value for key, value in keys.items() if not key.startswith("adapter.")}


def read_adapter_config(settings: dict) -> AdapterConfig:
    """Return how a run with these recorded settings trains adapters."""
    own = {key: value for key, value in settings.items() if key.startswith("adapter.")}
    return coerce_json({key.removeprefix("adapter."): value for key, value in own.items()}, AdapterConfig)


def flatten_config(config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every key of nested dataclasses."""
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            yield from flatten_config(value, name + ".")
        else:
            yield name, value


def round_trip_json(values: dict) -> dict:
    """Return the values as JSON gives them back: tuples become lists."""
    return json.loads(json.dumps(values))


def list_differences(then: dict, now: dict) -> list[str]:
    """List the changed values, except of keys that may change.

    >>> list_differences({"seed": 1, "log.every": 5}, {"seed": 2, "log.every": 9})
    ['seed was 1 and is 2']
    """
    keys = [key for key in {**then, **now} if not RESUMABLE_KEYS.search(key)]
    return [
        f"{key} was {then.get(key, 'absent')} and is {now.get(key, 'absent')}"
        for key in keys
        if then.get(key) != now.get(key)
    ]
