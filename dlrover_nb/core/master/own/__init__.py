"""The job master of parameter servers and workers: `JobMaster` takes what happened and returns orders.

`state` is what it knows, `rows` what becomes of data, `checkpoints` and `servers` lead those that keep the
parameters, `nodes` judges which nodes live and what each is told. `recovery_record` and `write_ahead_log`
bring a successor to where its predecessor was.
"""
