"""The `tmde` command: a module with the options of each command, and one with its work.

Modules of options (`embed`, `align` ...) import nothing heavy: `tmde --help` reads them all.
"""
