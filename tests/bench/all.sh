#!/usr/bin/env bash
# Takes the measurements of the first tables of configs/guides/bench/cpu.md and cpu-amd.md, one after the other:
#
#   tests/bench/all.sh MODEL DATA CORPUS OUTPUT [CLASSIFIER]
#
# MODEL is a sentence-transformers directory, DATA holds glue-sst2, mrpc, stsbenchmark, conll2003, squad, wikitext-2,
# vocab and xquad, each as published, and CORPUS is a corpus of `bert-jax prepare`. Each result is a file in OUTPUT, and
# what has one is not measured again. What fails, such as a measurement whose data are missing, is named at the end.
set -uo pipefail
if [ $# -lt 4 ] || [ $# -gt 5 ]; then
  sed -n '2,/^set/{/^set/!p}' "$0" | cut -c3-
  exit 1
fi
model=$1 data=$2 corpus=$3 output=$4 classifier=${5:-$1}
mkdir -p "$output"
failed=

measure() {
  local name=$1
  shift
  [ -s "$output/$name.md" ] && return
  echo "$name: python -m tests.bench $*"
  if python -m tests.bench "$@" >"$output/$name.partial"; then
    mv "$output/$name.partial" "$output/$name.md"
  else
    failed+=" $name"
  fi
}

finetune() {
  local name=$1 config=$2 train=$3
  shift 3
  measure "$name" finetune --config "configs/$config.py" "--config.init=$model" "--config.data.train=$train" "$@" \
    --against transformers transformers-autocast
}

# The texts of the first three, and MRPC with the column names of GLUE.
tail -n +2 "$data/glue-sst2/dev.tsv" | cut -f1 >"$output/sst2.txt"
cut -f6,7 "$data/stsbenchmark/sts-test.csv" | tr '\t' '\n' | awk 'NF && !seen[$0]++' >"$output/sts.txt"
grep -v '^ =' "$data/wikitext-2/test.txt" | tr -s ' \n' '\n' |
  awk 'NF { line = line (n ? " " : "") $0; if (++n == 200) { print line; line = ""; n = 0 } }' >"$output/long.txt"
for part in train test; do
  {
    printf 'label\tsentence1\tsentence2\n'
    tail -n +2 "$data/mrpc/msr_paraphrase_$part.txt" | tr -d '\r' | cut -f1,4,5
  } >"$output/mrpc-$part.tsv"
done

sizes=(--config.data.lengths=128 --config.data.length_ratios=1)
epoch=(--config.data.max_examples=6400 --config.epochs=1)
measure embed-short embed --model "$model" --input "$output/sts.txt" --against sentence-transformers onnxruntime
measure embed-long embed --model "$model" --input "$output/long.txt" --texts 100 \
  --against sentence-transformers onnxruntime
measure predict predict --model "$classifier" --input "$output/sst2.txt" --against transformers onnxruntime
measure step step --config configs/pretrain.py:base --config.data.batch_size=8 "${sizes[@]}" \
  --against torch torch-autocast torch-autocast-compiled
finetune sst-2 classify "$data/glue-sst2/train.tsv" "--config.data.validation=$data/glue-sst2/dev.tsv" "${epoch[@]}" \
  --config.optimizer.learning_rate=3e-5
finetune mrpc classify "$output/mrpc-train.tsv" "--config.data.validation=$output/mrpc-test.tsv" --config.epochs=2 \
  --config.optimizer.learning_rate=5e-5 --config.data.columns.text=sentence1 --config.data.columns.text_pair=sentence2
finetune conll-2003 tag "$data/conll2003/eng.train" "--config.data.validation=$data/conll2003/eng.testa" \
  "${epoch[@]}" --config.optimizer.learning_rate=5e-5
finetune squad answer "$data/squad/dev-v1.1.json" --config.data.max_examples=3000 --config.epochs=1
measure pretrain pretrain --config configs/pretrain.py:mini,laptop --workdir "$output/pretrain" \
  "--config.data.corpora=$corpus" --config.data.batch_size=16 "${sizes[0]}" --config.data.mlm_probability=0.15 \
  --config.data.sentence_objective=next_sentence --config.steps=3000 --config.model.hidden_dropout_prob=0 \
  --config.model.attention_probs_dropout_prob=0 --config.embedding_init=random --config.log.max_eval_batches=80
measure prepare prepare --input "$data/wikitext-2/train.txt" --tokenizer "$model" --megabytes 10
measure tokenizers tokenizers --vocab "$model" "$data"/vocab/*vocab* "$data"/vocab/albert*.model \
  "$data"/vocab/sentencepiece*.model --text "$data"/xquad/*
[ -z "$failed" ] || { echo "all.sh: not measured:$failed" >&2; exit 1; }
