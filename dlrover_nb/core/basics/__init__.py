"""Rules that need nothing else of the product: near names, numbers, secrets in texts, lines of a wait."""
