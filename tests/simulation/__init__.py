"""A simulation that looks for the product's next faults: one seed, one world, and all that may befall it.

A world is one of six kinds. `own`: a real job (loop, job master, controller, write-ahead log, journal, checkpoints and
history of `core.driver` in a real run folder) among played nodes with real stores (`driver_world`). `external`: the same of a
job of other programs, with the real client in pods that are played. `elastic`: an external job whose processes train together,
by the real client on played collectives. `saving`: one of a single process that keeps checkpoints, by the real client or in
files of its own. `brain`: several own jobs, and the real brains that plan for them. `exchange`: an own
job whose workers and parameter servers are the real ones too, on played sockets and threads. All of it is in virtual time. `schedule` draws from a seed a world, the acts of its clients, and faults; `world` carries them out; `audit`
keeps an account of its own and says what is wrong; `search` shrinks a failing schedule. What has a seed happens again: nothing
else enters a simulation.

After TigerBeetle's VOPR and FoundationDB's simulator. As there, the auditor knows nothing of how the product keeps its
promises: it counts what parameter servers were taught, which copies are whole, and adds up what jobs hold.
"""
