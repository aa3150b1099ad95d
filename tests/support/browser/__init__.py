"""Pages in a real browser, and what a person would see of them."""
