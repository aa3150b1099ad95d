"""What clients see of jobs: snapshots, events, summaries, past ones."""
