#!/usr/bin/env bash
# Measures latency with a shipped recipe and writes the report; an interrupted run is continued.
#
#   scripts/reproduce_latency.sh [cpu|a100|scripted] [DIR]     default: cpu, into runs/latency-cpu
set -euo pipefail
cd "$(dirname "$0")/.."

recipe=${1:-cpu}
out=${2:-runs/latency-$recipe}
file=configs/bench/$recipe.yaml
if [[ ! -f $file ]]; then
  echo "unknown recipe '$recipe'; choose cpu, a100 or scripted" >&2
  exit 2
fi

scripts/setup
bin=.venv/bin/localmem
if [[ $recipe == a100 ]]; then
  for model in mistral-7b-instruct-v0.3 llama-3.1-8b-instruct llmlingua-2-xlm-roberta-large; do
    $bin models pull "$model"
  done
fi

$bin bench latency --recipe "$file" --out "$out" --resume
$bin bench report "$out" --out "$out"
