"""The verb `train`."""

import shlex
from collections.abc import Sequence

from bert_jax.command.flags import (
    CONFIG,
    count,
    flag,
    verb,
    whole,
)


@verb(
    "train a model, or resume a run",
    "bert-jax train --config configs/pretrain.py:base --workdir runs/base --config.data.corpora=corpus",
    CONFIG,
    flag("--workdir", required=True, metavar="DIR", help="directory of the run; an existing run is resumed"),
    flag(
        "--dry-run", action="store_true", help="read the data, show what the run would do, and stop before it begins"
    ),
    flag(
        "--coordinator", metavar="HOST:PORT",
        help="address of process 0 of several; not needed on Slurm, on GKE and with launch/run.sh"
    ),
    flag("--processes", type=count, help="number of processes"),
    flag("--process", type=whole(0), help="index of this process, from 0"),
)  # fmt: skip
def train(args):
    from bert_jax.training.processes import joined

    if args.dry_run:
        from bert_jax.runs.dry_run import show

        show(args.config, args.overrides, args.workdir)
        return
    with joined(args.coordinator, args.processes, args.process):
        start(args.config, args.overrides, args.workdir)


def start(spec: str, overrides: Sequence[str], workdir: str) -> bool:
    """`bert-jax train`: return whether the run, or every run of a sweep, finished."""
    from bert_jax.core import config as configs
    from bert_jax.runs.run import run

    command = command_line(spec, overrides, workdir)
    return run(configs.read_file(spec), overrides, workdir, command) is not None


def command_line(spec: str, overrides: Sequence[str], workdir: str) -> str:
    settings = [f"--config.{override}" for override in overrides]
    return shlex.join(["bert-jax", "train", "--config", spec, *settings, "--workdir", str(workdir)])
