"""What two runs of the same command left, one undisturbed and one interrupted: steps, parameters, the profile.

`python -m bert_jax.pod.measured_runs DIRECTORY` prints it as JSON; DIRECTORY/whole and DIRECTORY/interrupted are the
directories of the runs, of which the first has a profile. A run that has not ended has no model.
"""

import sys
from pathlib import Path

import jax

from bert_jax.core.errors import first_line
from bert_jax.core.files import file_hash, to_json
from bert_jax.pod.hlo import COLLECTIVES
from bert_jax.training.log import read_metrics
from bert_jax.training.step_timer import PROFILED_STEPS
from bert_jax.training.workdir import Workdir

WHOLE, INTERRUPTED = "whole", "interrupted"
WEIGHTS = "model.safetensors"


def read_runs(directory: Path) -> dict[str, dict]:
    runs = {name: read_run(Workdir(directory / name)) for name in (WHOLE, INTERRUPTED)}
    runs[WHOLE]["profile"] = read_profile(Workdir(directory / WHOLE).profile)
    return runs


def read_run(workdir: Workdir) -> dict:
    weights = workdir.model / WEIGHTS
    return {
        "lines": [line for line in read_metrics(workdir.metrics) if line["kind"] == "train"],
        "model": file_hash(weights) if weights.exists() else None,
    }


def read_profile(directory: Path) -> dict:
    traces = sorted(directory.rglob("*.xplane.pb"))
    facts = {"directory": str(directory), "bytes": sum(trace.stat().st_size for trace in traces)}
    if not traces:
        return facts
    try:
        return facts | {"collectives": collective_seconds(traces[0])}
    except RuntimeError as error:  # what the parser of traces raises
        return facts | {"error": first_line(error)}


def collective_seconds(trace: Path) -> float | None:
    """Return the seconds of a step in which a device sends and does nothing else; None if the trace does not show it.

    The part of a collective that overlaps with computing is not in it: in a schedule such a collective is a start and
    an end, and only these two take time.
    """
    seconds, devices = 0.0, 0
    for plane in jax.profiler.ProfileData.from_file(str(trace)).planes:
        for line in plane.lines:
            if plane.name.startswith("/device:TPU") and line.name == "XLA Ops":
                devices += 1
                seconds += sum(event.duration_ns for event in line.events if is_collective(event.name)) / 1e9
    return seconds / devices / PROFILED_STEPS if devices else None


def is_collective(name: str) -> bool:
    """Whether an operation is one of those that send between chips.

    >>> [is_collective(name) for name in ("%all-reduce-start.3 = f32[8]", "all-gather.1", "%fusion.12")]
    [True, True, False]
    """
    return name.lstrip("%").startswith(COLLECTIVES)


def main() -> None:
    print(to_json(read_runs(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
