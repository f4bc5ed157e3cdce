"""Comparison files of `tmde compare` that come with the package.

    description: ...
    shared:                         # keys of recipes and their values, as on the command line of `tmde train`
      all: {max_cpu_minutes: 6}     # for every training; a system's own overrides go before its architecture's
      laser: {model.d_model: 256}   # block, and that before `all`; --train, --dev and the seed before everything
    start:                          # trained once, with `seed` or the first of `seeds`
      bag: {recipe: bag, overrides: {max_cpu_minutes: 4}}
    tokenizer: bag                  # the start whose tokenizer all systems take; their own without this key
    systems:
      tmde: {recipe: tmde, start: bag, seeds: [1, 2, 3], overrides: {warmup_steps: 50}}
      laser: {recipe: laser_6, start: bag}
    seeds: [42]                     # of systems that name none; the table has mean ± std, the first is tested
    reference: tmde                 # against which all others are tested; the first system without this key
    contrasts: [[tmde, laser]]      # pairs to test, the one that is expected to be better first
    tasks: [sib200, sentence_retrieval=FILE]                # as `tmde eval --tasks` takes them; all without this key
    task_options: {sentence_retrieval.max_rows: 1000}       # as `tmde eval --set`
    max_length: 512                 # as `tmde eval --max-length`
    folds: false                    # whether classification runs the ten folds of thesis 4.6, too
    titles: {sib200: SIB-200, tmde: T-MDE}   # of tasks and systems in the table

`max_cpu_minutes` limits each training by itself, a start and a first stage too; what a system may take is their sum,
as in the table. The clock stops with the last training step: the evaluation after it does not count.

A start takes the place of a first stage that is a bag; any other first stage begins with the start.
"""
