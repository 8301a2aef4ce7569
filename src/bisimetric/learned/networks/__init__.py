"""Networks of two states: of pairs, as in the paper, or with one value an action."""
