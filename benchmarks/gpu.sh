#!/usr/bin/env bash
# Learners, sampling and credit on a GPU (or, --device cpu --tiny, anywhere): JSON lines; status 1 and the reason where
# a result is wrong or, in full size on a GPU, a target is missed. Needs torch, transformers, peft, numba, networkx and scipy; no installation, no network.
#   benchmarks/gpu.sh [--device cuda|cpu] [--tiny] [--only parity,learner,sampling,credit] [--batch-tokens N]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/macredit" "$work/models"
ln -s "$here"/macredit/* "$here/agents" "$here/envs" "$work/macredit/" # laid out as an installation is
export PYTHONPATH=$work TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
"${PYTHON:-python}" "$here/benchmarks/gpu.py" --models "$work/models" "$@"
