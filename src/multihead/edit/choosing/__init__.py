"""Which heads go: what each costs, under a budget."""
