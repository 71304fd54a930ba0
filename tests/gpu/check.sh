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
# For trying this script itself: another model, fewer callers.
model=${GPU_CHECK_MODEL:-random}
callers=${GPU_CHECK_CALLERS:-72}

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

# paced SLOTS: a server with random weights of the published size, all its callers at once in real time, and four who come
# while they talk. The server is gone at the end.
paced() {
  local slots=$1 log=$out/server.txt began=$SECONDS pid address='' joiners result
  "$binary" serve --model "$model" --device "$device" --slots $((slots + 4)) --kv-dtype bf16 --admission off \
    --listen 127.0.0.1:0 --data-dir "$out/data" > "$log" 2>&1 &
  pid=$!
  until grep -q 'ready' "$log" || ! kill -0 "$pid" 2> /dev/null || [ $((SECONDS - began)) -gt 90 ]; do sleep 1; done
  address=$(grep -o 'http://[0-9.:]*' "$log" | head -n 1)
  if [ -n "$address" ] && grep -q 'ready' "$log"; then
    (
      sleep 12
      "$binary" load --url "$address" --sessions 4 --frames 100 > "$out/joiners.txt" 2>&1
      printf 'memory used while %s callers talk: ' "$slots"
      nvidia-smi --query-gpu=memory.used --format=csv,noheader | tr '\n' ' '
    ) > "$out/memory.txt" 2> /dev/null &
    joiners=$!
    step "paced-$slots" 60 load --url "$address" --sessions "$slots" --frames 375 --json
    result=$?
    wait "$joiners"
    # The server's own figures, by nothing but the shell.
    exec 3<> "/dev/tcp/127.0.0.1/${address##*:}" && printf 'GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 &&
      grep -aE '^vivavoce_(tick|deficit|late|deadline)' <&3 > "$out/ticks.txt"
    exec 3>&-
  else
    result=1
    printf '%-12s %-8s %4d s  the server did not start: %s\n' "paced-$slots" FAIL $((SECONDS - began)) "$(tail -n 1 "$log" | cut -c1-150)"
  fi
  kill -TERM "$pid" 2> /dev/null
  wait "$pid" 2> /dev/null
  [ "$result" = 0 ] || failed=1
}

if step probe 60 doctor --device "$device" --json; then
  step kernels-f32 40 verify --reference "$reference" --device "$device" --kernels --dtype f32
  step kernels-bf16 40 verify --reference "$reference" --device "$device" --kernels --dtype bf16
  step kernels-8bit 40 verify --reference "$reference" --device "$device" --kernels --dtype q8_0 --kv-dtype fp8
  step verify-f32 60 verify --reference "$reference" --device "$device" --dtype f32
  step verify-bf16 40 verify --reference "$reference" --device "$device" --dtype bf16
  step rows-f32 40 verify --reference "$reference" --device "$device" --rows --dtype f32
  step rows-bf16 40 verify --reference "$reference" --device "$device" --rows --dtype bf16
  step rows-fp8 40 verify --reference "$reference" --device "$device" --rows --dtype bf16 --kv-dtype fp8
  measure="--model $model --ticks 50 --warmup 5 --seconds 6"
  # shellcheck disable=SC2086 # words are wanted
  step sweep-bf16 120 bench $measure --device "$device" --dtype bf16 --kv-dtype bf16 --batch 16,32,64
  paced "$callers"
  # shellcheck disable=SC2086
  step sweep-fp8 90 bench $measure --device "$device" --dtype bf16 --kv-dtype fp8 --batch 64,128
  # shellcheck disable=SC2086
  step sweep-25 60 bench $measure --device "$device" --dtype bf16 --kv-dtype bf16 --fill 25 --batch 64
  step fault 30 verify --reference "$reference" --device "$device" --fault
  # shellcheck disable=SC2086
  step sweep-8bit 60 bench $measure --device "$device" --dtype q8_0 --kv-dtype fp8 --batch 12
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
for name in sweep-bf16 sweep-25 sweep-fp8 sweep-8bit; do
  section "$name: ms a tick, RTF, memory" "$out/$name.txt" 8
done
section 'four who came while the others talked' "$out/joiners.txt" 8
section 'ticks of the server' "$out/ticks.txt" 20
section 'memory' "$out/memory.txt" 2
cat << 'REACH'

== to reach on one H200, full windows (median ms a tick)
bf16 keys and values   B 16: 14   B 32: 22   B 64: 38      72 callers in real time
fp8 keys and values    B 64: 24   B 128: 42                128 callers in real time
8-bit weights, fp8 keys and values, 24 GB card at 1 TB/s   12 callers in real time
REACH
for at in "${!names[@]}"; do
  name=${names[at]}
  [ "${results[at]}" = ok ] && continue
  section "$name, last lines of its output" "$out/$name.txt" 30
  section "$name, last lines of its error stream" "$out/$name.txt.err" 10
done

echo
echo "total $SECONDS s; full outputs in $out"
[ "$failed" = 0 ] && echo 'all checks passed' || echo 'some checks FAILED'
exit "$failed"
