"""Forms: their fields and their HTML, the commands that they become, and the lines that say how it went."""
