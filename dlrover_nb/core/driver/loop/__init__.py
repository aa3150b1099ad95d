"""The loop that every job has: time, commands, exits of nodes, the controller, what clients see."""
