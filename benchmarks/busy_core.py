"""Training steps per second by GOMP_SPINCOUNT, on an idle machine and beside a process that keeps one core busy.

    python benchmarks/busy_core.py --spins default 100 1000 10000 100000

Two OpenMP threads spin while they wait for each other; beside a busy process, each waits for a thread that is not
running. Settings alternate, so that other load on the machine meets all of them; the median of the rounds counts.
"""

import argparse
import os
import statistics
import subprocess
import sys

CHILD = """
import time, torch
torch.manual_seed(0); torch.set_num_threads(2)
from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration
model = TmdeForConditionalGeneration(TmdeConfig(vocab_size=5000, d_model=128, encoder_layers=2,
    encoder_attention_heads=4, encoder_ffn_dim=512, decoder_attention_heads=4, decoder_ffn_dim=512, dropout=0.0))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ids = torch.randint(5, 5000, (48, 24)); labels = torch.randint(5, 5000, (48, 24))
begin, steps = None, 0
while begin is None or time.perf_counter() - begin < SECONDS:
    model(input_ids=ids, labels=labels, target_language="en").loss.backward()
    optimizer.step(); optimizer.zero_grad()
    steps += 1
    if begin is None and steps == 3: begin, steps = time.perf_counter(), 0
print(steps / (time.perf_counter() - begin))
"""


def steps_per_second(spin: str, seconds: float) -> float:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    # An empty count keeps the package from setting one; libgomp then takes its default.
    environment["GOMP_SPINCOUNT"] = "" if spin == "default" else spin
    code = CHILD.replace("SECONDS", str(seconds))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spins", nargs="+", default=["default", "100", "1000", "10000", "100000"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    for name in ("idle", "one busy core"):
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if name != "idle" else None
        try:
            rates = {spin: [] for spin in args.spins}
            for _ in range(args.rounds):
                for spin in args.spins:
                    rates[spin].append(steps_per_second(spin, args.seconds))
        finally:
            if busy is not None:
                busy.kill()
        first = statistics.median(rates[args.spins[0]])
        for spin, found in rates.items():
            rate = statistics.median(found)
            print(f"{name}: GOMP_SPINCOUNT={spin}: {rate:.2f} steps/s, {rate / first:.2f} of {args.spins[0]}")


if __name__ == "__main__":
    main()
