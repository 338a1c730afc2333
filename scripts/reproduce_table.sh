#!/usr/bin/env bash
# Compares memory systems on local backbones, unattended: table, intervals, costs, prompts and every answer go into DIR.
# An interrupted table is continued.
#
#   scripts/reproduce_table.sh PLAN DATA [DIR]
#
# PLAN is cpu (two cores, the starter, about half an hour), gpu (one GPU of 80 GB) or a file; DATA has the data sets' files
# (scripts/fetch_data.py); DIR is runs/table-PLAN by default.
set -euo pipefail
if [[ $# -lt 2 ]]; then
  sed -n '2,9p' "$0" >&2
  exit 2
fi
plan=$1
data=$(realpath "$2")
out=$(realpath -m "${3:-runs/table-$(basename "$plan" .yaml)}")
[[ -f $plan ]] && plan=$(realpath "$plan")
cd "$(dirname "$0")/.."
[[ -f $plan ]] || plan=configs/eval/table-$plan.yaml
if [[ ! -f $plan ]]; then
  echo "there is no plan $plan; choose cpu, gpu or a file" >&2
  exit 2
fi

scripts/setup
for model in minilm-l6-v2 $(sed -nE 's/^(backbones: \[|judge: )([^]]*)\]?.*/\2/p' "$plan" | tr ',' ' '); do
  .venv/bin/localmem models pull "$model" >/dev/null
done
.venv/bin/localmem eval table --recipe "$plan" --sources "$data" --out "$out"
