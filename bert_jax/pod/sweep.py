"""`bert-jax preflight --sweep`: batch, remat and mesh, and which of them is the fastest that fits."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bert_jax import config as configs
from bert_jax.errors import BertJaxError
from bert_jax.pod import checks, preflight
from bert_jax.pod.topology import Slice, slice_of
from bert_jax.tasks.pretrain import Config

GROWTH = (1, 2, 4)  # of the config's batch


@dataclass(frozen=True)
class Trial:
    batch: int
    remat: str
    fsdp: int

    @property
    def overrides(self) -> list[str]:
        return [
            f"data.batch={self.batch}",
            f"model.remat={self.remat}",
            f"mesh.fsdp={self.fsdp}",
            "mesh.data=-1",
        ]

    def __str__(self) -> str:
        return f"batch {self.batch}, remat {self.remat}, fsdp {self.fsdp}"


def sweep(spec: str, overrides: Sequence[str], topology: str, as_json: bool) -> str:
    """Each trial with its memory and speed, at the longest rows, and the one to take."""
    where, config = slice_of(topology), configs.load(spec, overrides, Config)
    _, vocabulary = checks.of(config, where)
    length = max(config.data.lengths)
    tried: list[dict] = []
    for trial in trials(config, where):
        if skipped(trial, tried):
            continue
        print(f"trying {trial} ...", file=sys.stderr, flush=True)
        changed = configs.load(spec, [*overrides, *trial.overrides], Config)
        try:
            phase = preflight.compiled(spec, [*overrides, *trial.overrides], where, length, vocabulary)
        except BertJaxError as error:
            tried.append({"trial": trial, "fits": False, "said": str(error)})
            continue
        phase = preflight.judged({"share": 1.0, **phase}, changed, where)
        tried.append({"trial": trial, "fits": phase["headroom"] >= 0, "phase": phase})
    fitting = [each for each in tried if each["fits"]]
    if not fitting:
        raise BertJaxError(
            f"nothing that was tried fits on {where}, down to {tried[-1]['trial']}; take a larger slice, or "
            f"a smaller --config.data.batch than {config.data.batch}"
        )
    best = max(fitting, key=speed)
    return as_object(tried, best) if as_json else text(tried, best, where, length)


def trials(config: Config, where: Slice) -> Iterator[Trial]:
    for growth in GROWTH:
        for fsdp in dict.fromkeys((config.mesh.fsdp, where.chips)):
            for remat in dict.fromkeys((config.model.remat, "full")):
                yield Trial(config.data.batch * growth, remat, fsdp)


def skipped(trial: Trial, tried: list[dict]) -> bool:
    """Making more again is for what does not fit otherwise; and what is too much is so with a larger batch, too."""
    for each in tried:
        other = each["trial"]
        if other.fsdp != trial.fsdp:
            continue
        if each["fits"] and other.batch == trial.batch:
            return True
        if not each["fits"] and other.batch < trial.batch and other.remat == trial.remat:
            return True
    return False


def speed(each: dict) -> float:
    return each["phase"]["tokens_per_second"]["by_operation"]


def as_object(tried: list[dict], best: dict) -> str:
    listed = [
        {**vars(each["trial"]), "fits": each["fits"], **{k: each[k] for k in ("phase", "said") if k in each}}
        for each in tried
    ]
    return json.dumps({"tried": listed, "best": vars(best["trial"])})


def text(tried: list[dict], best: dict, where: Slice, length: int) -> str:
    lines = [f"{where}, rows of {length}; speed operation by operation"]
    for each in tried:
        if "phase" not in each:
            lines.append(f"  {each['trial']}: {each['said']}")
            continue
        phase = each["phase"]
        needed = sum(phase["memory"].values()) / preflight.GiB
        said = (
            f"{speed(each) / 1e6:.2f} M tokens/s, MFU {phase['mfu']['by_operation']:.1%}, {needed:.1f} GiB a chip"
            if each["fits"]
            else f"does not fit ({needed:.1f} GiB a chip)"
        )
        lines.append(f"  {each['trial']}: {said}")
    lines.append("take " + " ".join(f"--config.{each}" for each in best["trial"].overrides))
    if best["trial"].batch != tried[0]["trial"].batch:
        lines.append("a larger batch asks for another learning rate and fewer steps")
    return "\n".join(lines)
