"""The verb `train`."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from bert_jax.command.flags import CONFIG, flag, positive_integer, verb, whole_number_type


@verb(
    "train a model, or resume a run",
    "bert-jax train --config configs/pretrain.py:base --workdir runs/base --config.data.corpora=corpus",
    *CONFIG,
    flag("--workdir", required=True, metavar="DIR", help="directory of the run; an existing run is resumed"),
    flag(
        "--dry-run", action="store_true", help="read the data, show what the run would do and how long it would take, "
        "and stop before it begins"
    ),
    flag(
        "--push", metavar="OWNER/NAME",
        help="push the finished model to this repository of the Hugging Face hub; a new one is private"
    ),
    flag(
        "--coordinator", metavar="HOST:PORT",
        help="address of process 0 of several; not needed on Slurm, on GKE and with launch/run.sh"
    ),
    flag("--processes", type=positive_integer, help="number of processes"),
    flag("--process", type=whole_number_type(0), help="index of this process, from 0"),
)  # fmt: skip
def train(args):
    from bert_jax.training.processes import join_processes

    if args.dry_run:
        from bert_jax.runs.dry_run import print_dry_run

        print_dry_run(args.config, args.overrides, args.workdir)
        return
    with (
        join_processes(args.coordinator, args.processes, args.process),
        pushing(args.push, args.workdir) if args.push else nullcontext(),
    ):
        start_training(args.config, args.overrides, args.workdir)


@contextmanager
def pushing(name: str, workdir: str) -> Iterator[None]:
    """Push the model of the run within the block; refuse a repository that cannot be written to before it begins."""
    import jax

    from bert_jax.core.terminal import print_line
    from bert_jax.hub.repository import create_repository, push_directory
    from bert_jax.training.workdir import Workdir

    if jax.process_index() > 0:
        yield
        return
    repository = create_repository(name, private=True)
    yield
    print_line(f"the model is pushed to {push_directory(Workdir(workdir).model, repository)}")


def start_training(spec: str, overrides: Sequence[str], workdir: str) -> None:
    """Train in this process; the run records the command."""
    from bert_jax.core.config_files import run_config_file
    from bert_jax.runs.run import run_from_config

    settings = [f"--config.{override}" for override in overrides]
    command = shlex.join(["bert-jax", "train", "--config", spec, *settings, "--workdir", str(workdir)])
    run_from_config(run_config_file(spec), overrides, workdir, command)
