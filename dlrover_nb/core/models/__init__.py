"""Models: torch modules on embedded rows that come from outside, their sizes, and measures of quality.

Only `learner` and the models' own modules import torch; sizes (`built_in`) and `metrics` are plain
arithmetic, so that the job master, which needs them, stays small.
"""
