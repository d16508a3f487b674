"""Which attention kernel "auto" takes: the first that can serve a request or, where that is one of ours, the faster of
it and XLA's, if it was compared with the definition on this device and is right.

The comparison and the timing happen where a program is traced that asks for it, once for each sort of request, and are
kept on disk. Where several processes trace a program together (a training step), process 0 decides.
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypedDict

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.core.errors import BertJaxError, first_line, suggest_name
from bert_jax.core.files import read_json, to_json, write_atomically
from bert_jax.core.hashes import is_sealed, seal
from bert_jax.core.kept_folder import HASH, device_facts, hash_sources, kept_folder
from bert_jax.core.terminal import print_line
from bert_jax.models.kernels.kernel_check import FAILURE, check_kernel, time_kernels
from bert_jax.models.kernels.kernel_table import KERNELS
from bert_jax.models.kernels.request import GPU, AttentionRequest
from bert_jax.models.mesh import device_kind


@dataclass(frozen=True)
class Choice:
    kernel: str
    reason: str


class ChoiceJson(TypedDict):
    """The content of the file of a choice."""

    name: str  # of the file
    kernel: str
    reason: str
    self: str


@dataclass
class KernelChoices:
    """The kernels that programs of this process take: those that train, which run on all processes, or others."""

    trains: bool = False
    taken: dict[AttentionRequest, Choice] = field(default_factory=dict)
    recorded: dict[str, dict] = field(default_factory=dict)  # by `key_of`: those of a run that is resumed
    lock: Any = field(default_factory=Lock)

    def take(self, request: AttentionRequest, able: list[str]) -> str:
        with self.lock:
            if request not in self.taken:
                # A thread of its own knows nothing of the trace, the mesh and the settings that this one is in.
                with ThreadPoolExecutor(1) as alone:
                    self.taken[request], is_new = alone.submit(self.decide, request, able).result()
                if jax.process_index() == 0 and (is_new or self.trains):
                    print_line(describe_choice(request, self.taken[request]))
        return self.taken[request].kernel

    def decide(self, request: AttentionRequest, able: list[str]) -> tuple[Choice, bool]:
        """Return the choice, and whether it was found by measuring."""
        key = key_of(request, self.trains)
        folder = kept_folder()
        # A run takes the same again for any number of rows, so that it can go on with others.
        file = folder / f"{key}-{request.rows if self.trains else 'any'}.kernel" if folder else None
        known = Choice(**self.recorded[key]) if key in self.recorded else file and read_choice(file)
        if known and known.kernel not in able:
            known = None
        # The other processes take what process 0 knows, or measure with it.
        index = self.of_first(able.index(known.kernel) if known else -1)
        if index >= 0:
            return Choice(able[int(index)], known.reason if known else ""), False
        choice = self.measure(request, able)
        if file and FAILURE not in choice.reason:  # perhaps there was no room, and next time there is
            with suppress(OSError, BertJaxError):
                write_atomically(file, to_json(seal({"name": file.stem, **asdict(choice)})))
        return choice, True

    def measure(self, request: AttentionRequest, able: list[str]) -> Choice:
        faults = ""
        other = next(name for name in able if not KERNELS[name].needs_check)
        for name in able[: able.index(other)]:
            fault, ratio = check_kernel(KERNELS[name], request).fault, 0.0
            if self.of_all(fault is None):  # otherwise no process times it: all must do the same
                speed, fault = relative_speed(name, other, request, self.trains)
                ratio = self.of_first(speed)
            if ratio > 1:
                gain = f"{ratio:.1f} x {other}" if ratio < math.inf else f"{other} fails at these shapes"
                return Choice(name, f"checked, {gain}{faults}")
            if ratio:
                return Choice(other, f"{1 / ratio:.1f} x {name}, which is right, too{faults}")
            faults += f"; {name} is not taken: {fault or 'it is wrong on another host'}"
        return Choice(other, faults.removeprefix("; "))

    def of_first(self, value: float) -> float:
        """Return the value of process 0."""
        if not self.trains or jax.process_count() == 1:
            return value
        return float(multihost_utils.broadcast_one_to_all(np.float32(value)))

    def of_all(self, value: bool) -> bool:
        """Return whether it is true in all processes."""
        if not self.trains or jax.process_count() == 1:
            return value
        return bool(multihost_utils.process_allgather(np.array(value)).all())

    def record(self) -> dict[str, dict]:
        """Return the choices as JSON, for a run that is resumed to take them again."""
        made = {key_of(request, self.trains): asdict(choice) for request, choice in self.taken.items()}
        return self.recorded | made


OF_INFERENCE = KernelChoices()
CHOICES: ContextVar[KernelChoices] = ContextVar("choices", default=OF_INFERENCE)
ASKED: ContextVar[dict[AttentionRequest, str] | None] = ContextVar("asked", default=None)


@contextmanager
def kernels_of(choices: KernelChoices) -> Iterator[None]:
    """Within the block, or in a function that this decorates, traced programs take kernels by these choices."""
    token = CHOICES.set(choices)
    try:
        yield
    finally:
        CHOICES.reset(token)


@contextmanager
def note_choices() -> Iterator[dict[AttentionRequest, str]]:
    """Give a dict to which each choice is added that is made in the block."""
    asked: dict[AttentionRequest, str] = {}
    token = ASKED.set(asked)
    try:
        yield asked
    finally:
        ASKED.reset(token)


def choose_kernel(kernel: str, request: AttentionRequest) -> str:
    """Return the name of the kernel for a request: `kernel` itself or, for "auto", the one that this file's head
    describes."""
    if kernel == "auto":
        able = [name for name, candidate in KERNELS.items() if candidate.refusal(request) is None]
        # For a device that is elsewhere, a program can only be compiled; it is supposed that our kernel is right there.
        if not KERNELS[able[0]].needs_check or not is_here(request):
            return able[0]
        chosen = CHOICES.get().take(request, able)
        if (asked := ASKED.get()) is not None:
            asked[request] = chosen
        return chosen
    if kernel not in KERNELS:
        raise BertJaxError(f'no attention kernel "{kernel}"; {suggest_name(kernel, [*KERNELS, "auto"])}')
    if reason := KERNELS[kernel].refusal(request):
        raise BertJaxError(f'attention "{kernel}" {reason}; use attention="auto" or "xla"')
    return kernel


def is_here(request: AttentionRequest) -> bool:
    """Return whether this process has the device that a program is traced for."""
    here = jax.local_devices()[0]
    is_same = request.platform == here.platform or {request.platform, here.platform} <= set(GPU)
    return is_same and device_kind() == here.device_kind


def key_of(request: AttentionRequest, trains: bool) -> str:
    """Return a name for all that a choice depends on."""
    facts = device_facts(), hash_sources("models/kernels/*.py"), trains, request
    return HASH(repr(facts).encode()).hexdigest()


def read_choice(file: Path) -> Choice | None:
    """Return the choice of a file; None if there is none that is whole."""
    try:
        content = read_json(file, ChoiceJson)
    except (OSError, BertJaxError):
        return None
    is_whole = is_sealed(content) and content["name"] == file.stem
    return Choice(content["kernel"], content["reason"]) if is_whole else None


def relative_speed(
    name: str, other: str, request: AttentionRequest, trains: bool
) -> tuple[float, str | None]:
    """Return how many times as fast as the other kernel it is; 0, and why, if it does not run at these shapes."""
    try:
        own, others = time_kernels([name, other], request, trains)
    except Exception:  # there is no room: most likely for the other's array of all scores
        try:
            time_kernels([name], request, trains)
        except Exception as error:
            return 0.0, f"it {FAILURE} at these shapes ({first_line(error)})"
        return math.inf, None
    return others / own, None


def describe_choice(request: AttentionRequest, choice: Choice) -> str:
    parts = (f"{name} {value}" for name in ("window", "dropout") if (value := getattr(request, name)))
    return (
        f"attention: {choice.kernel}, {choice.reason} ({', '.join((f'{request.length:,} tokens', *parts))})"
    )
