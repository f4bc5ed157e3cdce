"""What exists only to repeat the papers: recipes, comparisons, claims and published tables.

`tmde compare` runs a comparison file and passes verdicts on claims. `tmde eval run` sets its
results beside `published_tables`. Training finds `recipes` by the name of this package alone, so
there is no code here.
"""
