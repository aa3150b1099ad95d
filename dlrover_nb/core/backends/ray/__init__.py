"""Ray as a place where jobs run: life cycle only; parameters never travel through Ray."""
