#!/usr/bin/env bash
# On a machine with a CUDA device: builds heed's tests and measurements for it, runs all of them against Reference, then
# under compute-sanitizer where it is installed, then measures, beside PyTorch where it is installed. At most ten minutes.
#
#   bench/cuda/check.sh [folder for the results; default build/cuda-check]
#
# Leaves tests.txt, resources.txt, sanitizer.txt, heed.txt and heed.json, torch.txt and torch.json, and ends with 0 if all tests
# passed. Needs nvcc, CMake, doctest and xsimd; $ARCH is the architecture (native: the machine's).
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/cuda-check}
arch=${ARCH:-native}
mkdir -p "$out"
bad=0

if ! nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader | tee "$out/device.txt"; then
  echo "no CUDA device"
  exit 77
fi

nvcc -std=c++20 -O3 -arch="$arch" -Iinclude bench/cuda/check.cu -o "$out/heed_cuda_check" &
measure=$!
sources=(tests/cuda/device_main.cu tests/cuda/test_device_*.cpp)
export out arch
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} bash -c \
  'nvcc -std=c++20 -O1 "-arch=$arch" -Iinclude -Itests -diag-suppress=174 -x cu -c "{}" -o "$out/$(basename {}).o"' || exit 1
objects=()
for source in "${sources[@]}"; do objects+=("$out/$(basename "$source").o"); done
nvcc "-arch=$arch" "${objects[@]}" -o "$out/heed_test_cuda_device" || exit 1
wait "$measure" || exit 1

echo "== tests"
timeout 120 "$out/heed_test_cuda_device" | tee "$out/tests.txt" || bad=1
cuobjdump --dump-resource-usage "$out/heed_cuda_check" | grep -oE 'Function [^:]*|REG:[0-9]+ STACK:[0-9]+|LOCAL:[0-9]+' \
  >"$out/resources.txt"

quick='*memory*,*linear*,*attention_varlen*,*attention by tensor cores leaves out*'
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck initcheck; do
    echo "== compute-sanitizer $tool"
    timeout 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$out/heed_test_cuda_device" --test-case="$quick" |
      tail -3
    [ "${PIPESTATUS[0]}" -ne 9 ] || bad=1
  done 2>&1 | tee "$out/sanitizer.txt"
  grep -qE 'ERROR SUMMARY: [1-9]' "$out/sanitizer.txt" && bad=1
fi

echo "== speeds"
timeout 150 "$out/heed_cuda_check" "$out/heed.json" | tee "$out/heed.txt" || bad=1
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  timeout 90 python3 bench/cuda/peers.py "$out/torch.json" | tee "$out/torch.txt"
fi
exit "$bad"
