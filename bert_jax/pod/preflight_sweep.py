"""`bert-jax preflight --sweep`: try batches, remat and meshes, and choose the fastest combination that fits."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax import tasks
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.pod import preflight
from bert_jax.pod.topology import Slice, slice_of

GROWTH = (1, 2, 4)  # factors of the config's batch


@dataclass(frozen=True)
class Trial:
    batch: int
    remat: str
    fsdp: int

    @property
    def overrides(self) -> list[str]:
        return [
            f"data.batch_size={self.batch}", f"model.remat={self.remat}", f"mesh.fsdp={self.fsdp}", "mesh.data=-1"
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"batch {self.batch}, remat {self.remat}, fsdp {self.fsdp}"


@dataclass(frozen=True)
class Outcome:
    trial: Trial
    phase: dict = field(default_factory=dict)  # as in the result of preflight
    error: str = ""

    @property
    def fits(self) -> bool:
        return bool(self.phase) and self.phase["fits"]

    @property
    def speed(self) -> float:
        return self.phase["tokens_per_second"]["by_operation"]

    def __str__(self) -> str:
        if self.error:
            return f"{self.trial}: {self.error}"
        needed = sum(self.phase["memory"].values()) / preflight.GiB
        if not self.fits:
            return f"{self.trial}: does not fit ({needed:.1f} GiB a chip)"
        mfu = self.phase["mfu"]["by_operation"]
        return f"{self.trial}: {self.speed / 1e6:.2f} M tokens/s, MFU {mfu:.1%}, {needed:.1f} GiB a chip"

    def as_json(self) -> dict:
        result = {"error": self.error} if self.error else {"phase": self.phase}
        return vars(self.trial) | {"fits": self.fits} | result


def sweep(spec: str, overrides: Sequence[str], topology: str, as_json: bool) -> str:
    """Compile each trial at the longest rows; return its memory and speed, and the best trial."""
    where, (_, config) = slice_of(topology), tasks.load(spec, overrides)
    tried: list[Outcome] = []
    for trial in trials(config, where):
        if skipped(trial, tried):
            continue
        print(f"trying {trial} ...", file=sys.stderr, flush=True)
        changes = [*overrides, *trial.overrides]
        try:
            facts = preflight.compiled(spec, changes, where, longest=True)
        except BertJaxError as error:
            if not tried:  # the trial of the config as it is
                raise
            tried.append(Outcome(trial, error=str(error)))
        else:
            (phase,) = preflight.with_speeds(facts, where)["phases"]
            tried.append(Outcome(trial, phase))
    fitting = [outcome for outcome in tried if outcome.fits]
    if not fitting:
        raise BertJaxError(
            f"no trial fits on {where}, down to {tried[-1].trial}; take a larger slice, or a smaller "
            f"--config.data.batch_size than {tried[0].trial.batch}"
        )
    best = max(fitting, key=lambda outcome: outcome.speed).trial
    if as_json:
        return to_json({"tried": [outcome.as_json() for outcome in tried], "best": vars(best)})
    lines = [f"{where}, rows of {fitting[0].phase['length']}; speed operation by operation"]
    lines += [f"  {outcome}" for outcome in tried]
    lines.append("take " + " ".join(f"--config.{override}" for override in best.overrides))
    if best.batch != tried[0].trial.batch:
        lines.append("a larger batch needs another learning rate and fewer steps")
    return "\n".join(lines)


def trials(config: Any, where: Slice) -> Iterator[Trial]:
    """Yield the trials of a config of any task; the first is the config as it is."""
    for growth in GROWTH:
        for fsdp in dict.fromkeys((config.mesh.fsdp, where.chips)):
            for remat in dict.fromkeys((config.model.remat, "full")):
                yield Trial(config.data.batch_size * growth, remat, fsdp)


def skipped(trial: Trial, tried: list[Outcome]) -> bool:
    """Whether to skip a trial, judged by earlier trials with the same fsdp.

    Skip it if its batch already fits with less remat, or if a smaller batch does not fit with the same remat.
    """
    for outcome in tried:
        other = outcome.trial
        if other.fsdp == trial.fsdp and (
            (outcome.fits and other.batch == trial.batch)
            or (not outcome.fits and other.batch < trial.batch and other.remat == trial.remat)
        ):
            return True
    return False
