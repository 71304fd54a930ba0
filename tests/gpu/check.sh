#!/usr/bin/env bash
# What a machine with a GPU is asked, in one go of under 8 minutes: is the device usable, are the numbers right in both
# formats, does a row stay to itself, how many callers does it carry, what memory does that take.
#
#   tests/gpu/check.sh [BINARY] [DEVICE]      [default: target/release/vivavoce cuda:0]
#
# Takes one binary built with the feature cuda (.ci/cuda --release) and this repository's fixtures; installs nothing.
# Prints plain text to paste: a line for each step as it ends, then one table. Exit code 0: every check passed.
# The most important steps come first, each has a limit, and all of them share one. Full outputs stay in $GPU_CHECK_OUT,
# or in a folder that is named at the end.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-$here/../../target/release/vivavoce}
device=${2:-cuda:0}
reference=$here/../../server/engine/tests/fixtures/tiny2
out=${GPU_CHECK_OUT:-$(mktemp -d)}
whole_s=470

[ -x "$binary" ] || { echo "check: no program at $binary; build one with .ci/cuda --release" >&2; exit 2; }
[ -d "$reference/goldens" ] || { echo "check: no recorded outputs at $reference" >&2; exit 2; }
mkdir -p "$out"

# CUDA's libraries where toolkits and Python packages put them, behind what the loader already knows.
for folder in /usr/local/cuda*/lib64 /usr/lib/python3*/*-packages/nvidia/*/lib /usr/local/lib/python3*/*-packages/nvidia/*/lib; do
  if [ -d "$folder" ]; then LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; fi
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}

names=() results=() seconds=() remarks=()
failed=0

# step NAME LIMIT_S ARGUMENTS..: runs the program, keeps its output, notes how it ended.
step() {
  local name=$1 limit=$2 left=$((whole_s - SECONDS)) began=$SECONDS code result remark
  shift 2
  local log=$out/$name.txt
  if [ "$left" -lt 10 ]; then
    code=124
    echo 'no time was left for this step' > "$log"
  else
    [ "$limit" -le "$left" ] || limit=$left
    timeout --kill-after=5 "$limit" "$binary" "$@" > "$log" 2> "$log.err"
    code=$?
  fi
  case $code in
    0) result=ok ;;
    124 | 137) result=TIMEOUT ;;
    *) result=FAIL ;;
  esac
  remark=
  if [ "$code" != 0 ]; then
    failed=1
    # The program says in one line on the error stream why it did not work; progress lines stand before it.
    remark="exit code $code: $(grep -v '^[[:space:]]*$' "$log.err" 2> /dev/null | tail -n 1 | cut -c1-150)"
  fi
  names+=("$name") results+=("$result") seconds+=($((SECONDS - began))) remarks+=("$remark")
  printf '%-12s %-8s %4d s  %s\n' "$name" "$result" $((SECONDS - began)) "${remarks[-1]}"
  return "$code"
}

echo "vivavoce GPU check, $(date -u '+%Y-%m-%d %H:%M UTC'), $("$binary" --version 2> /dev/null), $device"
if command -v nvidia-smi > /dev/null; then
  timeout 20 nvidia-smi --query-gpu=index,name,driver_version,memory.total,memory.used --format=csv,noheader
fi
echo

if step probe 60 doctor --device "$device" --json; then
  step verify-f32 100 verify --reference "$reference" --device "$device" --dtype f32
  step verify-bf16 60 verify --reference "$reference" --device "$device" --dtype bf16
  step rows-f32 60 verify --reference "$reference" --device "$device" --rows --dtype f32
  step rows-bf16 60 verify --reference "$reference" --device "$device" --rows --dtype bf16
  step sweep 220 bench --model random --device "$device" --batch 1,8,32,64,16,4,2 --ticks 50 --warmup 5 --seconds 8
fi

echo
echo "== results"
printf '%-12s %-8s %6s  %s\n' check result seconds remark
for at in "${!names[@]}"; do
  printf '%-12s %-8s %6d  %s\n' "${names[at]}" "${results[at]}" "${seconds[at]}" "${remarks[at]}"
done

# section TITLE FILE LINES: the end of an output.
section() {
  [ -s "$2" ] || return 0
  echo
  echo "== $1"
  tail -n "$3" "$2" | cut -c1-200
}
grep -iE 'gpu|cuda|device|memory' "$out/probe.txt" > "$out/device.txt"
section 'device and memory' "$out/device.txt" 20
section 'callers at once: ms a tick, RTF, memory' "$out/sweep.txt" 12
for at in "${!names[@]}"; do
  name=${names[at]}
  [ "${results[at]}" = ok ] && continue
  [ "$name" = sweep ] || section "$name, last lines of its output" "$out/$name.txt" 30
  section "$name, last lines of its error stream" "$out/$name.txt.err" 10
done

echo
echo "total $SECONDS s; full outputs in $out"
[ "$failed" = 0 ] && echo 'all checks passed' || echo 'some checks FAILED'
exit "$failed"
