"""Charts that compare workers: how old their gradients are, how far apart they are, and what they train.

AntDT shows these of its jobs: batch sizes by worker over time (Fig. 12), and rows consumed against speed
(Figs. 3 and 16).
"""
