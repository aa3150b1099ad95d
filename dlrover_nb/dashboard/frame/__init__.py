"""What every answer has: checks of who asks, headers, errors, the log, and the frame of a page."""
