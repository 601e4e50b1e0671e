#!/usr/bin/env bash
# Runs a command as a step of the set-up, as package test/env/steps does: its output goes to a log
# file, and a step that takes longer than two seconds shows one line.
#   [ROUGH=4m] hack/step.sh NAME COMMAND...
# ROUGH is what it takes on a machine that has nothing yet.
set -euo pipefail

name=$1 dir=${XDG_CACHE_HOME:-$HOME/.cache}/joulevirt/steps
shift
file=$dir/${name//[^a-zA-Z0-9]/-}
mkdir -p "$dir"
"$@" >"$file.log" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null; exit 130' INT TERM

expected=${ROUGH:+, roughly $ROUGH}
[[ ! -s $file.duration ]] || expected=", last time $(<"$file.duration")"
spinner=(⠋ ⠙ ⠹ ⠸ ⠼ ⠴ ⠦ ⠧ ⠇ ⠏) shown= SECONDS=0
for ((i = 0; ; i++)); do
  sleep 0.1
  kill -0 $pid 2>/dev/null || break
  ((SECONDS >= 2)) || continue
  if [[ -t 2 ]]; then
    printf '\r\e[K%s %s  %ds%s' "${spinner[i % 10]}" "$name" $SECONDS "$expected" >&2
  elif [[ -z $shown ]]; then
    echo "setup: $name$expected" >&2
  fi
  shown=1
done
failed=0
wait $pid || failed=$?
result="done in" mark=✓
((failed == 0)) || result="failed after" mark=✗
if [[ $shown && -t 2 ]]; then
  printf '\r\e[K%s %s  %ds\n' $mark "$name" $SECONDS >&2
elif [[ $shown ]]; then
  echo "setup: $name: $result ${SECONDS}s" >&2
fi
if ((failed)); then
  echo "setup: $name: failed after ${SECONDS}s. Last lines of $file.log:" >&2
  tail -n 20 "$file.log" | sed 's/^/  /' >&2
elif [[ $shown ]]; then
  echo -n "${SECONDS}s" >"$file.duration"
fi
exit "$failed"
