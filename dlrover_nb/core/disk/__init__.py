"""Files of this machine: where a user's folders are, and files that are written whole."""
