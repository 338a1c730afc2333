#!/usr/bin/env bash
# Distils the starter model's memory steps end to end, unattended, from conversations that are shipped with localmem:
# collect, sift, train, merge, evaluate. Everything goes into DIR (default: runs/distill); finished steps are skipped.
#
#   scripts/reproduce_distill.sh [DIR]
#
# The settings are small, for two CPU cores: they show that every step works, not how good a student can become.
set -euo pipefail
out=$(realpath -m "${1:-runs/distill}")
cd "$(dirname "$0")/.."

scripts/setup
localmem=.venv/bin/localmem
$localmem models pull starters >/dev/null

starter=smollm2-135m-instruct
lessons=$out/lessons

# --resume for a folder in which that step began, and nothing for another.
resume() { if [ -e "$1" ]; then echo --resume; fi; }

# CareCall asks for a summary of each session and for an operation for each pair of sentences.
$localmem distill collect --system carecall --dataset jsonl=finetune/data/conversations.jsonl --set split=null \
  --teacher $starter --out "$lessons" $(resume "$lessons/run.json")
$localmem distill sift "$lessons"

[ -f "$out/chooser/run.json" ] || $localmem distill train "$lessons" --stage operation --student $starter \
  --rank 8 --epochs 1 $(resume "$out/chooser/checkpoints/begin.json") --out "$out/chooser"
[ -f "$out/part/run.json" ] || $localmem distill train "$lessons" --stage operation --student minilm-l6-v2 \
  --epochs 4 $(resume "$out/part/checkpoints/begin.json") --out "$out/part"
[ -f "$out/merged/config.json" ] || $localmem distill merge "$out/chooser" --student $starter --out "$out/merged"

$localmem distill evaluate "$lessons" --stage operation --student $starter --adapter "$out/chooser" --adapter "$out/part" \
  --set merged="$out/merged" --set card=true --limit 60 --out "$out/figures"
$localmem eval report "$out/figures" >/dev/null
echo "the adapter is in $out/chooser, the merged model in $out/merged, the report in $out/figures/report.html"
