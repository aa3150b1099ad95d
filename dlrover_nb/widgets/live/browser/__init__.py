"""How changes reach the page: polls, cells of a notebook, and what is sent to a browser."""
