"""The verbs of `%dlrover` and of the command line: one parser, one set of commands, one set of reprs.

Only `magics.shell` imports IPython, so the command line runs without it.
"""
