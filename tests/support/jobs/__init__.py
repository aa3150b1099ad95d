"""Jobs as clients see them: snapshots made by hand, masters in memory, exports."""
