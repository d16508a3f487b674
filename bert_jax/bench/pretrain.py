"""`bert-jax bench pretrain`: what a pre-training reaches, beside transformers' own of the same batches and recipe.

Ours is the run that `bert-jax train` does with the same flags, begun, resumed, or taken as it ended.
"""

import json
from collections.abc import Sequence

from bert_jax.bench.torch_pretrain import SUMS, TorchPretraining
from bert_jax.errors import BertJaxError
from bert_jax.tasks import load
from bert_jax.tasks.pretrain import Config
from bert_jax.train.log import heldout
from bert_jax.train.loop import train
from bert_jax.train.workdir import Workdir


def report(spec: str, overrides: Sequence[str], workdir: str, against: str | None, as_json: bool) -> str:
    module, config = load(spec, overrides)
    if not isinstance(config, Config):
        raise BertJaxError(f"{spec} is no pre-training; `bert-jax bench finetune` measures fine-tunings")
    if config.init:
        raise BertJaxError("both begin with initial values; leave --config.init away")
    task, data, config = module.open(config)
    theirs = TorchPretraining(task, data, config) if against else None
    if not train(task, data, config, workdir):
        raise BertJaxError(f"the run in {workdir} was stopped; the same command goes on with it")
    found = {"bert_jax": heldout(Workdir(workdir).metrics)}
    if theirs:
        found[str(against)] = []
        for line in theirs.lines():
            found[str(against)].append(line)
            print(f"{against} step {line['step']:,} heldout: mlm_loss {line['mlm_loss']:.4g}", flush=True)
    if as_json:
        return json.dumps(found)
    lines = [f"{'step':>7}  {'':12}" + "".join(f"{name:>14}" for name in SUMS)]
    for measured in zip(*found.values(), strict=True):
        for name, line in zip(found, measured, strict=True):
            values = "".join(f"{line[each]:14.4f}" if each in line else f"{'':14}" for each in SUMS)
            lines.append(f"{line['step']:7,}  {name:12}{values}")
    return "\n".join(lines)
