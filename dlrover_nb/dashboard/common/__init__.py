"""What all pages of a server share: its clusters, its history, the command service and its spans."""
