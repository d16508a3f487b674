"""Checkpoints: orbax writes them in the background; only those with a manifest of hashes count.

DIR/1000/            what orbax wrote after step 1000
DIR/1000/manifest.json
DIR/2000.damaged     a damaged checkpoint, set aside

orbax restores a flipped bit silently, and accepts a directory without its commit marker as a checkpoint. So a
checkpoint counts only if it has a manifest, and is good only if every file matches the manifest.
"""

import copy
import functools
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError, first_line, suggest_name
from bert_jax.core.files import hash_files, read_json, write_json
from bert_jax.core.output import remove_path
from bert_jax.training.best_evaluation import best_step, rank_key
from bert_jax.training.run_config import CheckpointConfig
from bert_jax.training.state import TrainState

ORBAX_PARTIAL = ".orbax-checkpoint-tmp"
MANIFEST_FILE = "manifest.json"


class CheckpointFolder:
    """The checkpoints of a run on disk."""

    def __init__(self, directory: Path):
        self.directory = Path(directory).absolute()

    def path(self, step: int) -> Path:
        return self.directory / str(step)

    def all_steps(self) -> list[int]:
        """Steps that have a directory, committed or not, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted(
            int(path.name) for path in self.directory.iterdir() if path.name.isdecimal() and path.is_dir()
        )

    def steps(self) -> list[int]:
        """Steps whose checkpoints were committed, oldest first; their files are not checked."""
        return [step for step in self.all_steps() if (self.path(step) / MANIFEST_FILE).is_file()]

    def require_step(self, step: int) -> None:
        """Refuse a step that has no good checkpoint."""
        if step not in self.all_steps():
            raise BertJaxError(
                f"{self.directory} has no checkpoint of step {step}; {self._others(step, str(step))}"
            )
        if wrong := find_damage(self.path(step)):
            raise BertJaxError(f"the checkpoint of step {step} cannot be used: {wrong}; {self._others(step)}")

    def _others(self, step: int, misspelt: str = "") -> str:
        """A hint that names other checkpoints, for an error about the checkpoint of `step`."""
        others = [other for other in self.steps() if other != step]
        return (
            suggest_name(misspelt, others, "other checkpoints") if others else "there is no other checkpoint"
        )

    def read_params(self, step: int) -> dict:
        """Read the parameters alone, as NumPy arrays."""
        silence_orbax()
        handler = ocp.PyTreeCheckpointHandler()
        saved = {"params": handler.metadata(self.path(step)).tree["params"]}
        restore_types = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), saved)
        asked = ocp.args.PyTreeRestore(item=saved, restore_args=restore_types, partial_restore=True)
        return handler.restore(self.path(step), args=asked)["params"]

    def read_position(self, step: int) -> dict:
        content = read_checkpoint_manifest(self.path(step))
        if content is None:
            raise BertJaxError(
                f"the checkpoint of step {step} cannot be used: its {MANIFEST_FILE} is damaged"
            )
        return content["position"]

    def best_step(self, metric: str) -> int | None:
        """The best step by a metric, among checkpoints that have it; the last of equally good ones."""
        values = {}
        for step in self.steps():
            content = read_checkpoint_manifest(self.path(step))
            measured = content["position"]["validation"] if content else {}
            if metric in measured:
                values[step] = rank_key(metric, measured)
        return best_step(values.items())

    def set_damaged_aside(self, print_line: Callable[[str], None]) -> int | None:
        """Return the step of the newest good checkpoint; report newer, damaged ones and set them aside."""
        if self.directory.is_dir():
            for partial in self.directory.glob(f"[0-9]*{ORBAX_PARTIAL}*"):
                remove_path(partial)
        for step in reversed(self.all_steps()):
            wrong = find_damage(self.path(step))
            if wrong is None:
                return step
            aside = self.path(step).with_name(f"{step}.damaged")
            remove_path(aside)
            self.path(step).rename(aside)
            print_line(
                f"the checkpoint of step {step} cannot be used: {wrong}; it is set aside as {aside.name}"
            )
        return None

    def tidy(self, config: CheckpointConfig) -> None:
        """Delete the checkpoints that no setting keeps."""
        steps = self.steps()
        kept: set[int | None] = set(steps[-config.keep :])
        if config.keep_every:
            kept |= {step for step in steps if step % config.keep_every == 0}
        if config.best_metric:
            kept |= {self.best_step(config.best_metric)}
        for path in map(self.path, set(steps) - kept):
            if not path.is_symlink():
                # The manifest goes first, so that a half-deleted checkpoint is not taken for a damaged one.
                (path / MANIFEST_FILE).unlink()
            remove_path(path)


class Checkpoints:
    """Writes and restores the checkpoints of a run in its folder."""

    def __init__(self, directory: Path, config: CheckpointConfig, say: Callable[[str], None] = print):
        self.folder, self.config, self.print_line = CheckpointFolder(directory), config, say
        silence_orbax()
        self._writer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
        self._committing: threading.Thread | None = None
        self._failure: Exception | None = None

    def save(self, step: int, state: TrainState, position: dict) -> None:
        """Copy the state and return; writing goes on in the background. `position` must be JSON."""
        self.wait()
        try:
            self._writer.save(self.folder.path(step), args=ocp.args.StandardSave(state), force=True)
        except Exception as error:  # a full or lost disk raises many types, from several libraries
            self._failed(step, error)
            return
        # A copy: the run goes on while the manifest is written.
        arguments = step, copy.deepcopy(position)
        self._committing = threading.Thread(target=self._commit, args=arguments, name=f"commit {step}")
        self._committing.start()

    def wait(self) -> None:
        """Wait until nothing is being written in the background."""
        if self._committing is not None:
            self._committing.join()
            self._committing = None

    def finish(self) -> None:
        """Wait for the last checkpoint; raise if it could not be written."""
        self.wait()
        self._writer.close()
        if self._failure is not None:
            raise BertJaxError(
                f"the last checkpoint could not be written to {self.folder.directory} "
                f"({failure_reason(self._failure)}); make room there and start the run again: it goes on from the one "
                "before"
            ) from self._failure

    def newest_step(self) -> int | None:
        """Return the step of the newest good checkpoint; report newer, damaged ones and set them aside."""
        newest = self.folder.set_damaged_aside(self.print_line) if jax.process_index() == 0 else None
        if jax.process_count() > 1:
            agreed = int(multihost_utils.broadcast_one_to_all(-1 if newest is None else newest))
            newest = None if agreed < 0 else agreed
        return newest

    def restore(self, step: int, abstract: TrainState) -> tuple[TrainState, dict]:
        """Return the state and the position; the state gets the shardings of `abstract`, not those it was saved in."""
        state = self._writer.restore(self.folder.path(step), args=ocp.args.StandardRestore(abstract))
        return state, self.folder.read_position(step)

    def _commit(self, step: int, position: dict) -> None:
        try:
            self._writer.wait_until_finished()
            if jax.process_index() == 0:
                write_checkpoint_manifest(self.folder.path(step), position)
                self.folder.tidy(self.config)
            self._failure = None
        except Exception as error:  # as in save
            self._failed(step, error)

    def _failed(self, step: int, error: Exception) -> None:
        self._failure = error
        if jax.process_index() == 0:  # the partial checkpoint takes the room of the next one
            for partial in (self.folder.path(step), *self.folder.directory.glob(f"{step}{ORBAX_PARTIAL}*")):
                shutil.rmtree(partial, ignore_errors=True)
        self.print_line(
            f"the checkpoint of step {step} could not be written ({failure_reason(error)}); the run goes on and tries "
            f"again in {self.config.every} steps, older checkpoints stay"
        )


def failure_reason(error: Exception) -> str:
    return "No space left on device" if "RESOURCE_EXHAUSTED" in str(error) else first_line(error)


@functools.cache
def silence_orbax() -> None:
    """Silence the pages that orbax and its event loops log about a failed save; we report it in one line."""

    def keep(record: logging.LogRecord) -> bool:
        return "orbax" not in record.pathname and "never retrieved" not in record.getMessage()

    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(keep)


class CheckpointManifest(TypedDict):
    position: dict[str, Any]
    files: dict[str, list[int | str]]  # name -> [size, hash]


def write_checkpoint_manifest(directory: Path, position: dict) -> None:
    """Hash the directory's files and write the manifest; `position` says where the run was."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    content = {"position": position, "files": hash_files(directory, names)}
    write_json(directory / MANIFEST_FILE, hashes.seal(content), indent=1)


def read_checkpoint_manifest(directory: Path) -> dict | None:
    """Return the content of the manifest; None if it is missing or damaged."""
    try:
        content = read_json(directory / MANIFEST_FILE, CheckpointManifest)
    except (FileNotFoundError, BertJaxError):
        return None
    return content if hashes.is_sealed(content) else None


def find_damage(directory: Path) -> str | None:
    """Say what is wrong with a checkpoint; return None if it is good."""
    if not (directory / MANIFEST_FILE).is_file():
        return "it was never committed"
    content = read_checkpoint_manifest(directory)
    if content is None:
        return f"its {MANIFEST_FILE} is damaged"
    files = {name: hashes.file_facts(*facts) for name, facts in content["files"].items()}
    return next(hashes.find_damaged_files(directory, files), None)
