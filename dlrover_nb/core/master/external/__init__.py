"""External jobs: their programs, rendezvous, and reports.

Nothing here does input or output: `ExternalMaster` decides, `core.driver` carries out its orders.
"""
