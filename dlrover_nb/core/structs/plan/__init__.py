"""Plans and what bounds them: cores and memory by role, capacity, prices, budgets, deadlines."""
