#!/usr/bin/env bash
# From nothing to a model that others open: install, train, push to a Hub on this machine (tests/hub_server.py, the
# real client code speaks to it), open from an environment without this package, search on the page of `tmde demo`.
#
#     bash docs/hub_walkthrough.sh [WORK_FOLDER]
#
# WORK_FOLDER keeps transcript.txt (which docs/guides/share.md prints), page.png and everything else; without it, nothing is
# kept. Needs Chromium or Chrome. CI runs this.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    work=$(cd "$1" && pwd)
    if [ -n "$(ls -A "$work")" ]; then echo "$work is not empty: choose another folder" >&2; exit 1; fi
else
    work=$(mktemp -d)
fi
processes=()
clean_up() {
    for process in ${processes[@]+"${processes[@]}"}; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    if [ $# -eq 0 ]; then rm -rf "$work"; fi
}
trap 'clean_up "$@"' EXIT
trap 'exit 130' INT TERM
cd "$work"

export PIP_DISABLE_PIP_VERSION_CHECK=1 TOKENIZERS_PARALLELISM=false HF_HUB_DISABLE_PROGRESS_BARS=1
export HF_HUB_OFFLINE=0 HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1 NO_PROXY=127.0.0.1,localhost
export no_proxy=$NO_PROXY PYTHONNOUSERSITE=1
unset PYTHONPATH HF_TOKEN HF_ENDPOINT

step() { printf '\n== %s\n' "$1" | tee -a transcript.txt; }
# Prints a command, and runs it in an environment (a folder of $work); what it prints goes into the transcript.
in_environment() {
    local name=$1 command=$2
    printf '$ %s\n' "$command" | tee -a transcript.txt
    HF_HOME="$work/$name-cache" PATH="$work/$name/bin:$PATH" bash -euo pipefail -c "$command" 2>"$name.err" </dev/null |
        sed "s#${HF_ENDPOINT:-http://nowhere}#HF_ENDPOINT#" | tee -a transcript.txt || { cat "$name.err" >&2; exit 1; }
}
wait_for() { # a line in a file, written by the last process that was started
    for _ in $(seq 1500); do
        if grep -q "$1" "$2" 2>/dev/null; then return; fi
        if ! kill -0 "${processes[-1]}" 2>/dev/null; then break; fi
        sleep 0.2
    done
    cat "$2" >&2
    echo "$2: expected a line with $1" >&2
    exit 1
}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
: "${browser:?needs Chromium or Chrome}"

step "the author's environment"
python3 -m venv reader  # for later; installs while the author installs and trains
reader/bin/pip install --quiet --no-compile -c "$root/constraints.txt" torch transformers sentence-transformers datasets &
reader_installed=$!
processes+=("$reader_installed")
python3 -m venv author
(cd "$root" && "$work/author/bin/pip" install --quiet --no-compile -c constraints.txt -e ".[demo,eval]" playwright)
# shellcheck disable=SC2016
echo '$ pip install -c constraints.txt -e ".[demo,eval]"' | tee -a transcript.txt
in_environment author 'tmde --version'

step "train: a tiny model on the built-in sample, and a corpus of its own"
in_environment author 'tmde train bag --train sample -o my-embedder max_minutes=0.5 model.d_model=128 \
    tokenizer.vocab_size=5000 | tail -n 1'
cat >corpus.py <<'PY'
from tmde.data.sample import sample_documents, sample_sentences

sample_sentences(500).select_columns(["translation"]).to_json("my-corpus.jsonl", force_ascii=False)
sample_documents(60).to_json("news.jsonl", force_ascii=False)
PY
printf '%s\n' "Die Zentralbank hat die Zinsen gesenkt." "The central bank has cut interest rates." \
    "La inflación ha bajado en España." "Le gouvernement a présenté le budget." "La Borsa di Milano ha chiuso in rialzo." \
    >texts.txt
in_environment author 'python corpus.py && wc -l < my-corpus.jsonl'
in_environment author 'tmde embed texts.txt -o here.npy -m my-embedder'

step "push to the Hub (here: tests/hub_server.py)"
author/bin/python "$root/tests/hub_server.py" demo=hf_demo >hub.log 2>&1 &
processes+=($!)
wait_for HF_ENDPOINT= hub.log
export HF_TOKEN=hf_demo "$(grep -m 1 HF_ENDPOINT= hub.log)"
in_environment author 'tmde push my-embedder demo/my-embedder'
in_environment author 'tmde push my-corpus.jsonl demo/my-corpus --repo-type dataset --license apache-2.0'

step "another environment, without this package"
wait "$reader_installed"
# shellcheck disable=SC2016
echo '$ pip install torch transformers sentence-transformers datasets' | tee -a transcript.txt
# Opens the model with AutoModel and SentenceTransformer, and compares the vectors with those of tmde.
cat >reader.py <<'PY'
from importlib.util import find_spec

import numpy as np
import torch
from datasets import load_dataset
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

assert find_spec("modeling_tmde") is None
texts = open("texts.txt", encoding="utf-8").read().splitlines()
expected = np.load("here.npy")  # of `tmde embed`

tokenizer = AutoTokenizer.from_pretrained("demo/my-embedder", trust_remote_code=True)
model = AutoModel.from_pretrained("demo/my-embedder", trust_remote_code=True)
with torch.no_grad():
    vectors = model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output.numpy()
difference = np.abs(vectors - expected).max()
print(f"AutoModel: {vectors.shape}, largest difference {difference:.0e}")
assert difference <= 1e-5

vectors = SentenceTransformer("demo/my-embedder", trust_remote_code=True).encode(texts)
difference = np.abs(vectors - expected).max()
print(f"SentenceTransformer: {vectors.shape}, largest difference {difference:.0e}")
assert difference <= 1e-5

rows = load_dataset("demo/my-corpus", split="train", streaming=True)
print("load_dataset:", sorted(next(iter(rows))["translation"]), sum(1 for _ in rows), "rows")
PY
in_environment reader 'python reader.py'

step "search on the demo page"
HF_HOME="$work/author-cache" author/bin/tmde demo demo/my-embedder news.jsonl --no-browser >demo.log 2>&1 &
processes+=($!)
echo '$ tmde demo demo/my-embedder news.jsonl' | tee -a transcript.txt
wait_for "The page is at" demo.log
cat >search.py <<'PY'
import sys

from playwright.sync_api import sync_playwright

address, browser, query, language = sys.argv[1:]
with sync_playwright() as playwright:
    page = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page(
        viewport={"width": 1400, "height": 1000}
    )
    page.goto(address)
    page.locator("#query textarea").fill(query)
    page.locator("#search").click()
    hits = page.locator("#hits .tmde-hit")
    hits.first.wait_for()
    page.wait_for_timeout(3000)  # the map follows
    page.screenshot(path="page.png")
    hits.first.locator(".tmde-versions summary").click()
    translation = hits.first.locator(".tmde-versions li").first
    code = translation.locator(".tmde-tag").inner_text()
    score = translation.locator(".tmde-score").inner_text()
    text = translation.locator(f"[lang={code}]").inner_text()
    print(f"query ({language}): {query}")
    print(f"{hits.count()} hits, each with its translations:")
    print(f"> 1. {code}, {score}: {text}")
PY
address=$(grep -o 'http://[^ ]*' demo.log | head -n 1)
HF_HOME="$work/author-cache" author/bin/python search.py "$address" "$browser" \
    "Die Ausfuhr von Maschinen in Italien ist im September geschrumpft, sagt die Handelskammer." de | tee -a transcript.txt
test -s page.png

sed -i '1{/^$/d}' transcript.txt
author/bin/python "$root/tests/docs/transcript.py" transcript.txt "$root/docs/guides/share.md"
