"""Verbs on runs: show a config, estimate the cost of a run, train, and export the model of a checkpoint."""

from bert_jax.command.flags import CONFIG, JSON, OVERRIDES, count, flag, number, verb, whole


@verb(
    "show the keys of a config: values, defaults, meanings",
    "bert-jax config classify:mrpc --config.data.batch=16",
    flag(
        "spec",
        nargs="?",
        metavar="FILE[:NAME]",
        help="config file, or the name of an installed one (default: list the installed ones); "
        "--config.KEY=VALUE changes a key",
    ),
    flag("--reference", action="store_true", help="print the reference of all tasks, configs/README.md"),
    JSON,
    OVERRIDES,
)
def config(args):
    from bert_jax.command import config, config_reference

    if args.reference:
        print(config_reference.written(), end="")
    elif args.spec is None:
        print(config.describe_recipes(args.json))
    else:
        print(config.describe(args.spec, args.overrides, args.json))


@verb(
    "check a run on a TPU slice without a TPU: memory, time, cost",
    "bert-jax preflight --config configs/pretrain.py:large,tpu --topology v5e:8x8 --price 1.2",
    CONFIG,
    flag(
        "--topology",
        required=True,
        metavar="CHIP:SIDES",
        help="slice, as in v5e:4x4, v6e:8x8, v4:2x2x4, v5p:4x4x4",
    ),
    flag("--price", type=number(0), metavar="P", help="price per chip-hour, in any currency"),
    flag("--workdir", metavar="DIR", help="directory of the run, to check the disk space for checkpoints"),
    flag(
        "--sweep", action="store_true", help="try batch sizes, remat and meshes; print the fastest that fits"
    ),
    JSON,
)
def preflight(args):
    from bert_jax.pod import preflight, preflight_sweep

    if args.sweep:
        print(preflight_sweep.sweep(args.config, args.overrides, args.topology, args.json))
        return
    asked = args.config, args.overrides, args.topology, args.price, args.workdir, args.json
    print(preflight.preflight(*asked))


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
        from bert_jax.command.train import start

        start(args.config, args.overrides, args.workdir)


@verb(
    "write the model of a run's checkpoint as a Hugging Face directory",
    "bert-jax export runs/base model --step 10000",
    flag("workdir", help="directory of the run"),
    flag("directory", help="output directory"),
    flag("--step", type=whole(0), help="step of the checkpoint (default: the newest)"),
)
def export(args):
    from bert_jax.command.train import export

    print(f"the model of step {export(args.workdir, args.directory, args.step):,} is in {args.directory}")
