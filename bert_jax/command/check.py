"""The verb `check`."""

from bert_jax.command.flags import JSON, flag, verb
from bert_jax.core.errors import BertJaxError


@verb(
    "verify a corpus, a run, an index, a model, or the attention kernels",
    "bert-jax check runs/base",
    flag("directory", nargs="?", help="corpus, directory of a run, index, or model directory"),
    flag(
        "--kernels",
        action="store_true",
        help="compare the attention kernels with the definition on this device, and time them",
    ),
    JSON,
)
def check(args):
    if bool(args.directory) == args.kernels:
        raise BertJaxError("name one thing to check: a directory, or --kernels")
    if args.json and not args.kernels:
        raise BertJaxError("--json is for --kernels; leave it out")
    if args.kernels:
        check_device(args.json)
    else:
        from bert_jax.runs.integrity import check_directory

        print(check_directory(args.directory))


def check_device(as_json: bool) -> None:
    """Print what the kernels are like on the device at hand; raise if one of them is wrong."""
    import jax

    from bert_jax.core.files import to_json
    from bert_jax.core.terminal import print_line
    from bert_jax.models.kernels.kernel_check import INTERPRETED, check_kernels

    if jax.default_backend() == "cpu":
        print_line(
            f"this is a CPU: the kernels are interpreted on rows of {INTERPRETED} tokens, and not timed"
        )
    cases = check_kernels()
    if as_json:
        print(to_json(cases, indent=2))
    else:
        print(
            f"{'kernel, case':<40} {'values':>7} {'gradients':>9} {'kept':>6} {'ms':>7} {'ms of xla':>9}  verdict"
        )
        for name, facts in cases.items():
            parts = (facts["values"], ".1%"), (facts["gradients"], ".1%"), (facts["kept"], ".1%")
            times = ((facts[part] and 1e3 * facts[part], ".2f") for part in ("seconds", "xla_seconds"))
            shown = ("-" if value is None else format(value, form) for value, form in (*parts, *times))
            cells = (f"{cell:>{width}}" for cell, width in zip(shown, (7, 9, 6, 7, 9), strict=True))
            print(f"{name:<40} {' '.join(cells)}  {facts['fault'] or 'right'}")
    if wrong := sum(facts["fault"] is not None for facts in cases.values()):
        raise BertJaxError(
            f'{wrong} of {len(cases)} are wrong on this device; attention="auto" does not take these'
        )
