"""Worlds for the job master: nodes, machines, disks and programs that answer it, message by message."""
