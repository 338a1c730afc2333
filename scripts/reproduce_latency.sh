#!/usr/bin/env bash
# Measures latency as the shipped plans say and writes the reports; a run that broke off goes on where it stopped.
#
#   scripts/reproduce_latency.sh [cpu|a100] [DIR]     default: cpu, into runs/latency-cpu
set -euo pipefail
cd "$(dirname "$0")/.."

plan=${1:-cpu}
out=${2:-runs/latency-$plan}
file=configs/bench/$plan.yaml
if [[ ! -f $file ]]; then
  echo "there is no plan '$plan'; take cpu or a100" >&2
  exit 2
fi

scripts/setup
bin=.venv/bin/localmem
if [[ $plan == a100 ]]; then
  for model in mistral-7b-instruct-v0.3 llama-3.1-8b-instruct llmlingua-2-xlm-roberta-large; do
    $bin models pull "$model"
  done
fi

$bin bench latency --plan "$file" --out "$out" --resume
mapfile -t runs < <(find "$out" -name result.json -printf '%h\n' | sort)
$bin bench report "${runs[@]}" --out "$out"
