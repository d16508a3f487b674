"""The directory of a run.

run.json        the config it was begun with, what its data was, and how its model is laid out
tokenizer/      the tokenizer of its data
checkpoints/    its state, see checkpoint.py
metrics.jsonl   what was measured; events.* the same for TensorBoard; curves.png a picture of it
model/          the result, a Hugging Face directory
"""

import dataclasses
import fcntl
import json
import re
from pathlib import Path

from bert_jax.errors import BertJaxError
from bert_jax.files import read_json, write_atomically
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.models.config import EncoderConfig
from bert_jax.train.config import RunConfig
from bert_jax.train.task import Data

# Keys that may change when a run goes on: they decide where and how it is computed and seen, not what it learns. The
# corpora may lie elsewhere; that they are the same ones is checked by what is in them.
FREE = re.compile(
    r"^(mesh|log|checkpoints)\.|^(bad_steps|report|seeds|sweep|data\.corpora|model\.(attention|remat))$"
)
RUN = {"config": dict, "data": dict, "layout": dict}  # what run.json holds


class Workdir:
    def __init__(self, path):
        self.path = Path(path)
        self.run, self.tokenizer = self.path / "run.json", self.path / "tokenizer"
        self.checkpoints, self.metrics = self.path / "checkpoints", self.path / "metrics.jsonl"
        self.curves, self.model, self.profile = (
            self.path / name for name in ("curves.png", "model", "profile")
        )
        self._lock = None

    def claim(self) -> None:
        """Makes the directory, and sees to it that no second run on this machine writes to it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")  # noqa: SIM115 - held until close()
        except OSError as error:
            raise BertJaxError(
                f"--workdir {self.path} cannot be written to ({error.strerror}); name one that can"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BertJaxError(
                f"another run is writing to {self.path}; stop it or name another --workdir"
            ) from error

    def close(self) -> None:
        if self._lock:
            self._lock.close()

    def begin(self, config: RunConfig, data: Data, layout: Layout) -> None:
        """Writes down what the run is, or refuses if the directory is that of a different one."""
        said = {"config": flat(config), "data": data.identity(), "layout": described(layout)}
        if not self.run.exists():
            data.tokenizer.save(self.tokenizer)
            write_atomically(self.run, json.dumps(said, indent=1) + "\n")
            return
        begun = self.read()
        # A key that was not there yet when the run began had, in effect, its default.
        then = as_read(defaults(config)) | begun["config"]
        self.refuse(different(then, as_read(said["config"])), "settings")
        self.refuse(different(begun["data"], said["data"]), "data")

    def refuse(self, differing: list[str], kind: str) -> None:
        if differing:
            more = f" and {len(differing) - 6} more" if len(differing) > 6 else ""
            raise BertJaxError(
                f"{self.path} was begun with other {kind}: {'; '.join(differing[:6])}{more}; "
                "put them back, or name another --workdir"
            )

    def read(self) -> dict:
        try:
            return read_json(self.run, keys=RUN, remedy="put it back from a copy")
        except FileNotFoundError as error:
            raise BertJaxError(f"{self.path} is no directory of a run (it has no run.json)") from error


def described(layout: Layout) -> dict:
    said = {name: getattr(layout, name) for name in ("heads", "labels", "pooler", "published")}
    return said | {"family": layout.family.model_type, "config": dataclasses.asdict(layout.config)}


def layout_of(said: dict) -> Layout:
    """The inverse of `described`."""
    config, family = EncoderConfig(**said["config"]), FAMILIES[said["family"]]
    return Layout(
        config, family, tuple(said["heads"]), tuple(said["labels"]), said["pooler"], said["published"]
    )


def flat(config, prefix: str = "") -> dict:
    """Nested dataclasses as one dict with dotted keys."""
    values: dict = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        name = prefix + field.name
        values |= flat(value, name + ".") if dataclasses.is_dataclass(value) else {name: value}
    return values


def defaults(config, prefix: str = "") -> dict:
    """Those of its keys that have one, likewise."""
    values: dict = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            values |= defaults(value, name + ".")
        elif field.default is not dataclasses.MISSING:
            values[name] = field.default
    return values


def as_read(values: dict) -> dict:
    """As JSON gives them back: tuples are lists there."""
    return json.loads(json.dumps(values))


def different(then: dict, now: dict) -> list[str]:
    """
    >>> different({"seed": 1, "log.every": 5}, {"seed": 2, "log.every": 9})
    ['seed was 1 and is 2']
    """
    keys = [key for key in {**then, **now} if not FREE.search(key)]
    return [
        f"{key} was {then.get(key, 'absent')} and is {now.get(key, 'absent')}"
        for key in keys
        if then.get(key) != now.get(key)
    ]


def nested(values: dict) -> dict:
    """The inverse of `flat`, as nested dicts."""
    tree: dict = {}
    for key, value in values.items():
        *outer, last = key.split(".")
        section = tree
        for name in outer:
            section = section.setdefault(name, {})
        section[last] = value
    return tree
