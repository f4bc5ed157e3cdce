"""Comparison files of `tmde compare` that come with the package.

    description: ...
    # Keys of recipes and their values, as on the command line of `tmde train`.
    shared:
      # For every training. A system's own overrides go before its architecture's block, and that
      # before `all`; --train, --dev and the seed go before everything.
      all: {max_cpu_minutes: 6}
      laser: {model.d_model: 256}
    # Trained once, with `seed` or the first of `seeds`. A start may begin with one before it.
    start:
      bag: {recipe: bag, overrides: {max_cpu_minutes: 4}}
    # The start whose tokenizer all systems take; without this key, each has its own.
    tokenizer: bag
    systems:
      tmde: {recipe: tmde, start: bag, seeds: [1, 2, 3], overrides: {warmup_steps: 50}}
      laser: {recipe: laser_6, start: bag}
    # Of systems that name none; the table has mean ± std, and the first is tested.
    seeds: [42]
    # All others are tested against this system; without this key, against the first.
    reference: tmde
    # Pairs to test, the one that is expected to be better first.
    contrasts: [[tmde, laser]]
    # As `tmde eval --tasks` takes them; without this key, all.
    tasks: [sib200, sentence_retrieval=FILE]
    task_options: {sentence_retrieval.max_rows: 1000}  # as `tmde eval --set`
    max_length: 512                                    # as `tmde eval --max-length`
    long_documents: truncate                           # as `tmde eval --long-documents`
    folds: false  # whether classification runs the ten folds of thesis 4.6, too
    tfidf: true   # whether TF-IDF of characters is measured, too
    titles: {sib200: SIB-200, tmde: T-MDE}  # of tasks and systems in the table
    protocol: zero-shot                     # as `tmde eval --protocol`
    # Further evaluations, in which some systems take part.
    evaluations:
      long: {tasks: [topic_documents], max_length: 750, systems: [tmde, laser]}
    # Claims on which verdicts are passed; `claims.json` in the folder of the comparison has them.
    claims:
      tmde-above-laser:
        paper: "000"
        place: table 4.3
        sentence: T-MDE outperforms it by 3.2% in cross-lingual tests ('Cross').
        verbatim: true
        figure: 73.5 against 70.3
        better: tmde
        worse: laser
        equal: rows
        measures:           # the first decides, the others are shown beside it
          - {title: Cross, tasks: [sib200], group: Cross}
          - {title: training words a second, cost: words_per_second}
      another: {paper: "003", place: section 6.2, sentence: ..., verbatim: false, why_not: No data.}

`max_cpu_minutes` limits each training by itself, a start too. What a system may take is their sum,
as in the table. The clock stops with the last training step: the evaluation
after it does not count.

A file with `base: claims` takes from that comparison what it lacks itself; entries of mappings,
such as single systems, are replaced one by one.

The source of a task, `sentence_retrieval=FILE`, is looked for in `--eval-data` first.

`tmde.cli.claims` describes the keys of a claim, and `tmde.eval.verdicts` the rules of verdicts.
"""
