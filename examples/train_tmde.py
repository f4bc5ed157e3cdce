"""Train T-MDE on Europarl, measure it on SIB-200 and XNLI, and push it to the Hub.

    python examples/train_tmde.py --push OWNER/NAME
    accelerate launch --multi_gpu --num_processes 4 examples/train_tmde.py

Everything is streamed from the Hub; `--europarl` and `--tasks` also take folders, such as
`--tasks mldoc=PATH/mldoc`. For a trial on a CPU, add `--width 64 --batch-tokens 2000 --steps 20`.
"""

import argparse

from accelerate import PartialState

from tmde import (
    DocumentEmbedder,
    TmdeConfig,
    TmdeForConditionalGeneration,
    TmdeTrainer,
    TmdeTrainingArguments,
    load_parallel,
    train_tokenizer,
)
from tmde.eval import EmbeddingSystem, EvaluationOptions, evaluate, markdown_report, plan_tasks

LANGUAGES = ["de", "en", "fr"]

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--europarl", default="Helsinki-NLP/europarl")
parser.add_argument("--tasks", nargs="+", default=["sib200", "xnli"], metavar="NAME[=SOURCE]")
parser.add_argument("--output", default="runs/tmde")
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--batch-tokens", type=int, default=128_000)
parser.add_argument("--width", type=int, default=1024, help="a multiple of 64")
parser.add_argument("--push", metavar="REPO", help="the Hub repository of the model")
options = parser.parse_args()

rows = load_parallel(options.europarl, LANGUAGES, streaming=True)
tokenizer = train_tokenizer(rows.take(200_000), vocab_size=50_000)
heads = options.width // 64
config = TmdeConfig(
    vocab_size=len(tokenizer),
    languages=LANGUAGES,
    pivot_languages=["en"],
    d_model=options.width,
    encoder_attention_heads=heads,
    decoder_attention_heads=heads,
    encoder_ffn_dim=4 * options.width,
    decoder_ffn_dim=4 * options.width,
)
trainer = TmdeTrainer(
    model=TmdeForConditionalGeneration(config),
    args=TmdeTrainingArguments(
        options.output,
        max_steps=options.steps,
        batch_tokens=options.batch_tokens,
        bf16="auto",
        hub_model_id=options.push,
    ),
    train_dataset=rows,
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model()

if trainer.is_world_process_zero():
    system = EmbeddingSystem("T-MDE", DocumentEmbedder.from_pretrained(options.output))
    # XNLI's train set has 392,702 pairs; 20,000 take minutes instead of hours.
    planned = plan_tasks(options.tasks, options={"xnli": {"max_train": 20_000}})
    tasks = [task.load(streaming=True, known=LANGUAGES) for task in planned]
    protocol = EvaluationOptions(head="logistic_regression", folds=False)
    print(markdown_report(list(evaluate(tasks, [system], protocol))))
if options.push:
    trainer.push_to_hub()
# Without this, a process that ends first is an error for the others.
PartialState().destroy_process_group()
