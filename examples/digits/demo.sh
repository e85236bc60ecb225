#!/usr/bin/env bash
# Trains the networks of sweep.jsonl on the GPU if there is one, else on the CPU. `make demo` builds what it needs first.
# It keeps its state in .demo, so that a demo which was stopped goes on when it is started again.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=examples/digits
state=.demo
python=.venv/bin/python
for needed in bin/gpumux "$python"; do
	if [ ! -x "$needed" ]; then
		echo "$needed is missing; make demo builds it" >&2
		exit 3
	fi
done
mkdir -p "$state"

echo "training $(wc -l <"$here/sweep.jsonl") neural networks on handwritten digits"
status=0
XDG_STATE_HOME="$PWD/$state" bin/gpumux map "$here/sweep.py:train" --in "$here/sweep.jsonl" --out "$state/results.jsonl" --json \
	--local --python "$python" >"$state/summary.json.new" || status=$?
# 1 says that some networks failed; the report names them.
if [ "$status" -gt 1 ] || [ ! -s "$state/summary.json.new" ]; then
	rm -f "$state/summary.json.new"
	exit "$status"
fi
mv "$state/summary.json.new" "$state/summary.json"
"$python" "$here/report.py" "$state/summary.json" "$here/sweep.jsonl" "$state/results.jsonl"
exit "$status"
