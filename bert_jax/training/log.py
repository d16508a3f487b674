"""The progress reports of a run: metrics.jsonl, TensorBoard events, printed lines or a progress bar."""

import errno
import json
import math
import os
import sys
import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from tqdm import tqdm

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from bert_jax.core.output import explain_os_errors
from bert_jax.core.progress import format_duration
from bert_jax.core.terminal import (
    IS_SILENT,
    PARTS_AFTER,
    RUN_PREFIX,
    add_run_prefix,
    log_file,
    wrap_for_terminal,
)

SECONDS = 60  # time between flushes of the events to disk, where the viewer reads them
QUIET_SECONDS = 15  # time between printed metrics in a part of a larger run
LONG = 60  # seconds of such parts that are announced
NARROWEST = 10  # least columns of the bar itself, beside its counts and metrics


class MetricSums:
    """Sums over the steps since the last line. Checkpoints store them, so a resumed run loses no part of a line."""

    def __init__(self, sums: dict | None = None):
        self.sums = sums or {"steps": 0, "tokens": 0, "pairs": {}}

    def add(self, measured: dict) -> None:
        self.sums["steps"] += 1
        self.sums["tokens"] += int(measured["tokens"])
        for name, (total, weight) in {**measured["losses"], **measured["scores"]}.items():
            before = self.sums["pairs"].get(name, (0.0, 0.0))
            self.sums["pairs"][name] = (before[0] + float(total), before[1] + float(weight))

    def means(self) -> dict[str, float]:
        return {
            name: total / weight if weight else 0.0 for name, (total, weight) in self.sums["pairs"].items()
        }

    def line_values(self, measured: dict) -> dict:
        """Return the values of a line, given the metrics of the last step."""
        means = self.means()
        losses = [means[name] for name in measured["losses"] if name in means]
        # If every update since the last line was discarded, there are no means: the keys get null.
        unmeasured = dict.fromkeys([*measured["losses"], *measured["scores"]])
        return {"loss": sum(losses) if losses else None, **unmeasured, **means} | {
            "learning_rate": float(measured["learning_rate"]),
            "gradient_norm": float(measured["gradient_norm"]),
            "discarded": int(measured["discarded"]),
            "tokens": self.sums["tokens"],
        }


class MetricsLog:
    """Write lines of metrics. `step` counts finished steps: the line of step N describes the state after N steps."""

    def __init__(self, directory: Path, path: Path, step: int, steps: int, quiet: bool):
        self.quiet = quiet
        if quiet:
            return
        drop_lines_after(path, step)
        self._path = path
        with explain_os_errors(directory):
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
            self._events = EventFile(directory, purge_step=step + 1)
        # None: the bar is disabled if there is no terminal
        without_bar = True if step >= steps or IS_SILENT.get() else None
        part = RUN_PREFIX.get().removesuffix(": ") or None
        self._printed, self._steps, self._told_parts = time.monotonic(), steps, False
        # smoothing=0: the time left follows from the mean speed, in which each evaluation counts for all its steps.
        self._bar = tqdm(
            desc=part,
            total=steps,
            initial=step,
            unit="step",
            disable=without_bar,
            dynamic_ncols=True,
            smoothing=0,
        )
        self._first_step = step + 1

    def write_line(self, kind: str, step: int, values: dict, timings: dict | None = None) -> None:
        if self.quiet:
            return
        # JSON cannot hold numbers that are not finite, such as some gradient norms.
        values = {
            name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in values.items()
        }
        line = {"step": step, "kind": kind, **values} | ({"time": timings} if timings else {})
        values = {**values, **(timings or {})}
        with explain_os_errors(self._path):
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            self._events.add(name_values(line), step)
        if not (RUN_PREFIX.get() and time.monotonic() - self._printed < QUIET_SECONDS):
            self.print_line(
                f"step {step:,} {kind}: {format_metrics(name_only_loss(values))}",
                only_without_bar=kind == "train",
            )
            self._printed = time.monotonic()
        if not self._told_parts and "hours_left" in values:
            self.tell_parts(step, 3600 * values["hours_left"])
        if kind == "train" and not self._bar.disable:
            self._bar.set_postfix_str(drop_to_fit(format_metrics(values, BAR), free_columns(self._bar)))

    def tell_parts(self, step: int, left: float) -> None:
        """Say once, in a part of a larger run, how long it and the parts after it will take, if that is long. `left`
        are the seconds that this part takes after `step`."""
        self._told_parts = True
        after = PARTS_AFTER.get()
        total = left + after * left * self._steps / max(self._steps - step, 1)
        if after and total >= LONG:
            several = f"{after} runs like this one follow" if after > 1 else "1 run like this one follows"
            self.print_line(f"about {format_duration(left)} left, {format_duration(total)} in all: {several}")

    def advance(self) -> None:
        if self.quiet:
            return
        self._bar.update()
        if self._bar.n == self._first_step:  # it compiled, so the mean speed begins after it
            self._bar.initial = self._bar.n
            self._bar.unpause()
            self._bar.start_t = self._bar.last_print_t

    def print_line(self, text: str, only_without_bar: bool = False) -> None:
        if self.quiet or IS_SILENT.get() or (only_without_bar and not self._bar.disable):
            return
        try:
            file = log_file()
            tqdm.write(wrap_for_terminal(add_run_prefix(text), file), file=file)
        except OSError as error:
            if error.errno != errno.EIO:  # EIO: the terminal is gone; the signal for that follows
                raise

    def sync(self) -> None:
        """Flush all lines to disk, before a checkpoint records that they were written."""
        if not self.quiet:
            with explain_os_errors(self._path):
                os.fsync(self._file.fileno())
                self._events.flush()

    def close(self) -> None:
        if not self.quiet:
            self._bar.close()
            for file in (self._file, self._events):
                with suppress(OSError):  # a full disk was already reported when the write failed
                    file.close()


class EventFile:
    """A file of TensorBoard events; the viewer drops what an earlier run wrote from `purge_step` on.

    Events are written directly: the thread of tensorboardX's SummaryWriter dies if the disk is full, and then whoever
    gives it events waits for ever.
    """

    def __init__(self, directory: Path, purge_step: int):
        # tensorboardX imports torch where it is installed: seconds and hundreds of megabytes that no event needs.
        modules: dict[str, Any] = sys.modules  # None keeps a module from being imported
        hidden = "torch" not in modules
        if hidden:
            modules["torch"] = None
        try:
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.summary import scalar
        finally:
            if hidden:
                del modules["torch"]
        self._event, self._scalar = Event, scalar
        self._writer = EventsWriter(str(directory / "events"))
        self._writer.write_event(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))
        self._flushed = 0.0

    def add(self, values: dict, step: int) -> None:
        now = time.time()
        for name, value in values.items():
            event = self._event(step=step, wall_time=now, summary=self._scalar(name, value))
            self._writer.write_event(event)
        if now - self._flushed > SECONDS:
            self.flush()
            self._flushed = now

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


BAR = ("loss", "mlm_accuracy", "accuracy", "tokens_per_second", "mfu", "input_wait")
NOTABLE_WAIT = 0.05  # share of the time
FILE_ONLY = ("gradient_norm", "tokens", "seconds", "seconds_per_step", "peak_memory")  # not printed


def format_metrics(values: dict, names: tuple[str, ...] | None = None) -> str:
    """Format the values (or only those with these names) for people. The only part of a loss is not repeated.

    >>> timings = {"tokens": 99, "tokens_per_second": 17432.1, "input_wait": 0.31, "hours_left": 0.4}
    >>> format_metrics({"loss": 2.34567, "mlm_loss": 2.34567} | timings)
    'loss 2.346, 17,432 tokens/s, 31% waiting for input, 24 min left'
    """
    parts = (
        format_metric(name, value)
        for name, value in values.items()
        if isinstance(value, int | float)
        and name not in FILE_ONLY
        and (names is None or name in names)
        and not (name.endswith("_loss") and value == values.get("loss"))
    )
    return ", ".join(part for part in parts if part)


def name_only_loss(values: dict) -> dict:
    """Call the loss `loss` in a line that has only one part of it, as the lines do that also have the sum.

    >>> name_only_loss({"mlm_loss": 2.5, "mlm_accuracy": 0.5}), name_only_loss({"mlm_loss": 2.5, "nsp_loss": 0.5})
    ({'loss': 2.5, 'mlm_accuracy': 0.5}, {'mlm_loss': 2.5, 'nsp_loss': 0.5})
    """
    losses = [name for name in values if name.endswith("loss")]
    return {"loss" if [name] == losses else name: value for name, value in values.items()}


def free_columns(bar: tqdm) -> int:
    """The number of terminal columns that the progress bar, its counts and its times leave free."""
    facts = bar.format_dict | {"postfix": None}
    counts = len(tqdm.format_meter(**facts | {"ncols": 0})) + len("||") + len(", ")
    return (facts["ncols"] or 80) - counts - NARROWEST


def drop_to_fit(text: str, room: int) -> str:
    """Drop comma-separated parts from the end until the text fits into `room` columns, which a narrow terminal lacks.

    >>> drop_to_fit("loss 2.346, accuracy 0.5, 17,432 tokens/s", 25), drop_to_fit("loss 2.346", -3)
    ('loss 2.346, accuracy 0.5', '')
    """
    while text and len(text) > room:
        text = text.rpartition(", ")[0]
    return text


def format_metric(name: str, value: float) -> str:
    match name:
        case "tokens_per_second":
            return f"{value:,.0f} tokens/s"
        case "input_wait":
            return f"{value:.0%} waiting for input" if value >= NOTABLE_WAIT else ""
        case "mfu":
            return f"{value:.1%} MFU"
        case "hours_left":
            return f"{format_duration(3600 * value)} left" if value else ""
        case "discarded":
            return f"{value:,} discarded" if value else ""
    return f"{name} {value:,.0f}" if abs(value) >= 10_000 else f"{name} {value:.4g}"


def name_values(line: dict) -> dict[str, float]:
    """Return the numbers of a line, with the names that TensorBoard and other trackers show.

    >>> name_values({"step": 5, "kind": "train", "loss": 2.5, "accuracy": None, "time": {"seconds": 0.5}})
    {'train/loss': 2.5, 'train/seconds': 0.5}
    """
    values = {**line, **line.get("time", {})}
    return {
        f"{line['kind']}/{name}": value
        for name, value in values.items()
        if name != "step" and isinstance(value, int | float) and math.isfinite(value)
    }


def validation_lines(path: Path) -> list[dict]:
    return [line for line in read_metrics(path) if line["kind"] == "validation"]


def read_metrics(path: Path) -> list[dict]:
    """Read the lines of a metrics.jsonl, up to the first that was cut short when a run was killed."""
    lines: list[dict] = []
    if path.exists():
        for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            try:
                line = json.loads(text)
            except ValueError:
                break
            match line:
                case {"step": int(), "kind": str()}:
                    lines.append(line)
                case _:
                    raise BertJaxError(f"{path}: line {number} holds no measurements of a step; remove it")
    return lines


def drop_lines_after(path: Path, step: int) -> None:
    """Drop the lines after `step`, because the run repeats those steps; also those about an earlier step at its end."""
    kept = takewhile(lambda line: line["step"] <= step, read_metrics(path))
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept))
