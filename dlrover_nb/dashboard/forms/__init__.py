"""Forms: their fields, the commands that they become, and the lines that say how it went."""
