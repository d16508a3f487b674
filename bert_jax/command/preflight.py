"""The verb `preflight`."""

from bert_jax.command.flags import CONFIG, JSON, flag, number, verb


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
