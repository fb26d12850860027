"""Before serving: export, parity, fusing a recipe into the graph, checks. Needs the extra [make]."""
