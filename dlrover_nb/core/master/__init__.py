"""What the job master decides, without input or output: `core.driver` carries its orders out.

`own` leads our parameter servers and workers, `external` the programs of others; `shared` is what both use.
No clock, socket or file is read here: time and what happened come in as values.
"""
